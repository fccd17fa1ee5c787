#!/usr/bin/env python3
"""Runs the notebooks with the real kernel, and fails where a cell does, or prints something else than is written.

    notebooks/run.py [--write | --check | --first] [--bin FOLDER] [NAME...]      NAME: lab00, ...; default: all

With --write, what cells print is written. A cell's metadata has rules for what may differ, such as times, in the form of
book/outputs.toml's: {"shardlab": {"rules": [{"line": " ms", "shape": true}]}}; `book`, in FOLDER (target/debug), compares.
--check only asks, in a second, whether the cells and what they call are what was run: a hash of each is written beside the outputs.
What all cells call, the library and the kit, is in no hash: who changes those runs a notebook. Running needs nbclient and
evcxr_jupyter.
"""

import argparse
import hashlib
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
# What a package has for its own program alone.
NOT_CALLED = ("main.rs", "tests", "tests.rs", "exercises", "solutions", "checks")


def code_of(notebook):
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")


def hashed(notebook):
    """The hashes of a notebook's code, and of what that calls."""
    code = code_of(notebook)
    called = [file.relative_to(ROOT).as_posix() + "\n" + without_comments(file) for file in sorted(files_called(code))]
    digest = lambda text: hashlib.sha256(text.encode()).hexdigest()
    return {"hash": digest(code), "calls": digest("\n".join(called))}


def without_comments(file):
    return "".join(line for line in file.read_text().splitlines(True) if line.strip() and not line.strip().startswith("//"))


def files_called(code):
    """The files of the labs that code names, and of the book's figures."""
    labs = ROOT / "labs"
    files = [file for name in set(re.findall(r"\blab\d\d\b", code)) for file in (labs / name).rglob("*.rs")]
    if "planner::" in code:
        files += (ROOT / "crates/planner").rglob("*.rs")
    if "book::" in code:
        book = labs / "tools/book"
        files += [book / "live.rs", *(file for room in ("draw", "figures") for file in (book / room).rglob("*.rs"))]
    return [file for file in files if not any(part in NOT_CALLED for part in file.parts)]


def stale(path):
    notebook = json.loads(path.read_text())
    was, now = notebook["metadata"].get("shardlab", {}), hashed(notebook)
    what = [what for name, what in (("hash", "its cells"), ("calls", "what its cells call")) if was.get(name) != now[name]]
    return f"{path.name}: not what was run: {', '.join(what)}; run notebooks/run.py --write {path.stem}" if what else None


def differences(path, notebook, book):
    """What a run's cells have printed that is not what is written."""
    with tempfile.NamedTemporaryFile("w", suffix=".ipynb") as file:
        json.dump(notebook, file)
        file.flush()
        compared = subprocess.run([book, "notebook", path, file.name], capture_output=True, text=True)
    return f"{path.name}: {compared.stderr.strip()}" if compared.returncode else None


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


def run(path, write, first, book):
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

    async def take_late_lines(cell, cell_index, execute_reply):
        """evcxr 0.22 passes lines on in a thread of its own, which may still have one when it says that a cell ended."""
        try:
            while True:
                client.process_message(await client.kc.get_iopub_msg(timeout=0.1), cell, cell_index)
        except queue.Empty:
            pass

    client.on_cell_executed = take_late_lines
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
            begun, ended = (time.mktime(time.strptime(end[:19], "%Y-%m-%dT%H:%M:%S")) + float(end[19:] or 0) for end in ends)
            times.append(ended - begun)
    shown = " ".join(f"{seconds:.1f}" for seconds in times)
    print(f"{path.name}: {time.monotonic() - start:.0f} s in all, cells: {shown}", flush=True)
    if write:
        notebook.metadata["shardlab"] = hashed(notebook)
        notebook.metadata.pop("widgets", None)
        fold(notebook)
        nbformat.write(notebook, path)
    elif not first:
        return differences(path, notebook, book)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="write what cells print")
    how.add_argument("--check", action="store_true", help="run nothing: are the cells those that were run?")
    how.add_argument("--first", action="store_true", help="run the first cell alone, which builds the library")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "target/debug", help="where `book` lies")
    parser.add_argument("names", nargs="*", metavar="NAME", help="lab00, ...; default: all")
    args = parser.parse_args()
    # `tests/` has one that no reader opens, which asks the kernel itself.
    notebooks = [*sorted(HERE.glob("*.ipynb")), *sorted(HERE.glob("tests/*.ipynb"))]
    paths = [path for path in notebooks if not args.names or path.stem in args.names]
    if not paths:
        sys.exit("error: no notebook of that name")
    if args.check:
        wrong = [found for path in paths if (found := stale(path))]
        sys.exit("\n".join(wrong) if wrong else 0)
    book = args.bin / "book"
    if not args.write and not args.first and not book.is_file():
        sys.exit(f"error: {book} is not there\nhelp: cargo build --bin book, or name its folder with --bin")
    # evcxr 0.22 loads a cell's library from another folder than the one its run path was made for, which fails where
    # EVCXR_TMPDIR and the toolchain lie below one folder, such as a home.
    libraries = subprocess.run(["rustc", "--print", "target-libdir"], check=True, capture_output=True, text=True)
    # Notebooks show the bits that every machine gives: a processor's tiles have their own.
    os.environ["SHARDLAB_SIMD"] = "vectors"
    os.environ["LD_LIBRARY_PATH"] = f"{libraries.stdout.strip()}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    wrong = [found for path in paths if (found := run(path, args.write, args.first, book))]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
