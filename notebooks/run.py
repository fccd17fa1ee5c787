#!/usr/bin/env python3
"""Runs the notebooks with the real kernel, and fails on any cell that does.

    notebooks/run.py [--write | --check | --first] [NAME...]      NAME: lab00, ...; default: all

Without --write, also fails where the committed outputs are stale: when the hash of a notebook's code cells and of the
public signatures that they use is not the one noted when it was last written. --check does only this, in a second.
Running needs nbclient and evcxr_jupyter.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def signatures(words):
    """What is public in the library and has one of these names, as it is declared: types, what stands in a file beside a
    type of these names (its methods and fields), and functions of a room of these names."""
    # A field ends with its line; all else goes on to its body, its value or its end.
    item, field = r"(?:const (?=fn))?(fn|struct|enum|type|const) (\w+)[^{;]*", r"(\w+):.*"
    declared = re.compile(rf"^( *)pub (?:{item}|{field})", re.MULTILINE)
    found = []
    labs = HERE.parent / "labs"
    library = [HERE.parent / "src", labs / "kit", *labs.glob("lab*/apparatus")]
    sources = [path for folder in library for path in folder.rglob("*.rs")]
    for name in ["lib", "lesson", "flags", "run"]:
        sources.extend(labs.glob(f"lab*/{name}.rs"))
    for source in sorted(sources):
        items = [match for match in declared.finditer(source.read_text()) if (match.group(3) or match.group(4)) in words]
        has_type = any(match.group(2) in ("struct", "enum") for match in items)
        in_room = source.parent.name in words
        for match in items:
            if has_type or (in_room and not match.group(1)):
                found.append(" ".join(match.group(0).split()))
    return sorted(found)


def fingerprint(path):
    """The hash of a notebook's code and of the signatures that it uses, and the hash noted in its file."""
    notebook = json.loads(path.read_text())
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    words = set(re.findall(r"\w+", "\n".join(code)))
    now = hashlib.sha256("\n".join(code + signatures(words)).encode()).hexdigest()
    return now, notebook["metadata"].get("shardlab", {}).get("fingerprint")


def stale(path):
    now, noted = fingerprint(path)
    return None if now == noted else f"{path.name}: its outputs are stale; run notebooks/run.py --write {path.stem}"


def fold(notebook):
    """The first code cell is plumbing, and closed. What a cell prints line by line is one output."""
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    first["metadata"]["jupyter"] = {"source_hidden": True, "outputs_hidden": True}
    for cell in notebook["cells"]:
        joined = []
        for output in cell.get("outputs", []):
            is_stream = output["output_type"] == "stream"
            if is_stream and joined and joined[-1].get("name") == output["name"]:
                joined[-1]["text"] += output["text"]
            else:
                joined.append(output)
        if "outputs" in cell:
            cell["outputs"] = joined


def run(path, write, first):
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    if not write and not first and (found := stale(path)):
        return found
    notebook = nbformat.read(path, as_version=4)
    if first:
        notebook.cells = [next(cell for cell in notebook.cells if cell.cell_type == "code")]
    resources = {"metadata": {"path": str(HERE)}}
    client = NotebookClient(notebook, timeout=1800, startup_timeout=300, resources=resources)
    start = time.monotonic()
    try:
        client.execute()
    except CellExecutionError as error:
        return f"{path.name}: {error}"
    times = []
    for cell in notebook.cells:
        stamps = cell.metadata.pop("execution", {})
        if "iopub.execute_input" in stamps and "shell.execute_reply" in stamps:
            ends = [stamps[name].rstrip("Z") for name in ("iopub.execute_input", "shell.execute_reply")]
            first, last = (time.mktime(time.strptime(end[:19], "%Y-%m-%dT%H:%M:%S")) + float(end[19:] or 0) for end in ends)
            times.append(last - first)
    shown = " ".join(f"{seconds:.1f}" for seconds in times)
    print(f"{path.name}: {time.monotonic() - start:.0f} s in all, cells: {shown}", flush=True)
    if write:
        notebook.metadata["shardlab"] = {"fingerprint": fingerprint(path)[0]}
        notebook.metadata.pop("widgets", None)
        fold(notebook)
        nbformat.write(notebook, path)
    return None


def main():
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    paths = [path for path in sorted(HERE.glob("*.ipynb")) if not names or path.stem in names]
    if not paths:
        sys.exit("no notebook of that name")
    if "--check" in sys.argv:
        wrong = [found for path in paths if (found := stale(path))]
        sys.exit("\n".join(wrong) if wrong else 0)
    # evcxr 0.22 loads a cell's library from another folder than the one its run path was made for, which fails where
    # EVCXR_TMPDIR and the toolchain lie below one folder, such as a home.
    libraries = subprocess.run(["rustc", "--print", "target-libdir"], check=True, capture_output=True, text=True)
    os.environ["LD_LIBRARY_PATH"] = f"{libraries.stdout.strip()}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    write, first = "--write" in sys.argv, "--first" in sys.argv
    if write and first:
        sys.exit("--write takes the outputs of all cells over, and --first runs one")
    wrong = [found for path in paths if (found := run(path, write, first))]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
