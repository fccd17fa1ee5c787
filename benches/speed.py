#!/usr/bin/env python3
"""Makes the tables of the book's page "Speed" again, on this machine, in Markdown.

Above them stand the machine's peak, the versions, the date and the commit. Peers that are not installed are left out, and named.

Set-up:  python3 -m venv venv && venv/bin/pip install torch numpy deepspeed
Run:     venv/bin/python benches/speed.py > speed.md
Less:    venv/bin/python benches/speed.py --quick --only step pytorch

It builds first, for some minutes. Let nothing else run meanwhile.
"""
import argparse, datetime, importlib.metadata, os, pathlib, platform, re, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEAK = re.compile(r"MFU [\d.]+% of (\d+) GFLOP/s a core")
LINK = "100us,62MB/s"


def version(package):
    """The version of a Python package, or None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def first_line(*command):
    """The first line that a command prints, or None where there is no such command."""
    if not shutil.which(command[0]):
        return None
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return (done.stdout.splitlines() or [None])[0] if done.returncode == 0 else None


def run(*command, **environment):
    """What a command prints. What it says meanwhile, such as cargo's progress, goes to the terminal."""
    print("$", *command, file=sys.stderr, flush=True)
    done = subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


def bench(a, name, *flags, **environment):
    features = ["--features", "mpi"] if "CARGO_TARGET_DIR" in environment else []
    profile = ["--profile", "dev"] if a.quick else []
    return run("cargo", "bench", "--quiet", *profile, *features, "--bench", name, "--", *flags, **environment)


def fenced(text):
    return f"```text\n{text}\n```"


def step(a):
    presets = ["baby"] if a.quick else ["baby", "char"]
    return "\n\n".join(fenced(bench(a, "step", preset, "1")) for preset in presets)


def pytorch(a):
    fewer = ["--rounds", "1", "--only", "baby", "--dev"] if a.quick else []
    dtypes = ["f32", "bf16"]
    return "\n\n".join(run(sys.executable, "benches/against_pytorch.py", "--dtype", dtype, *fewer) for dtype in dtypes)


def products(a):
    return fenced(bench(a, "products"))


def overlap(a):
    """The row on averaging, with overlap and without: as over a slow network, and as fast as memory."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for flags in [["--link", LINK, "--no-overlap"], ["--link", LINK], ["--no-overlap"], []]:
            words = ["--steps", "40" if a.quick else "200", "--eval-iters", "1", "--all", "--out", folder, *flags]
            profile = [] if a.quick else ["--release"]
            said = run("cargo", "run", "--quiet", *profile, "--bin", "lab03", "--", *words)
            row = next((line.strip() for line in said.splitlines() if line.startswith("  averaging")), "no row `averaging`")
            rows.append(f"lab03 {' '.join(flags)}\n    {row}")
    return fenced("\n".join(rows))


def allreduce(a):
    flags = ["--rounds", "1" if a.quick else "3"]
    if version("torch"):
        flags += ["--python", sys.executable]
    # The bindings of MPI have a build of their own.
    with_mpi = {"CARGO_TARGET_DIR": "target-mpi"} if shutil.which("mpicc") and not a.quick else {}
    return bench(a, "allreduce", *flags, **with_mpi)


def zero(a):
    links = [[]] if a.quick else [[], ["100us,0.2GB/s"]]
    return fenced("\n\n".join(bench(a, "zero", "baby", "2", *link) for link in links))


def checkpoints(a):
    flags = ["--rounds", "1" if a.quick else "5"]
    if version("deepspeed"):
        flags += ["--python", sys.executable]
    sizes = [[]] if a.quick else [["--large"], []]
    return "\n\n".join(bench(a, "universal", *flags, *size) for size in sizes)


# Name, heading on the page, function, and the Python package without which there is nothing to compare.
PARTS = [
    ("step", "Where a step's time goes", step, None),
    ("pytorch", "Beside PyTorch DDP", pytorch, "torch"),
    ("products", "Products in bf16", products, None),
    ("overlap", "Overlap", overlap, None),
    ("allreduce", "All-reduce", allreduce, None),
    ("zero", "ZeRO", zero, None),
    ("checkpoints", "Checkpoints", checkpoints, None),
]


def facts():
    """What a figure of speed belongs to."""
    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        names = (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        cpu = next(names, cpu)
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout
    return {
        "machine": f"{os.cpu_count()} cores of {cpu or 'an unnamed processor'}",
        "rustc": first_line("rustc", "--version"),
        "PyTorch": version("torch"),
        "DeepSpeed": version("deepspeed"),
        "MPI": first_line("mpirun", "--version"),
        "date": datetime.date.today().isoformat(),
        "commit": (first_line("git", "rev-parse", "--short", "HEAD") or "unknown") + (", with changes" if changed else ""),
    }


def heading(facts, peak, load):
    """The table above the others: machine, peak, versions, date, commit, and what is missing."""
    rows = [("machine", facts["machine"]), ("peak", f"{peak} GFLOP/s per core" if peak else "not measured: add `step` to `--only`")]
    rows += [(name, facts[name]) for name in ["rustc", "PyTorch", "DeepSpeed", "MPI", "date", "commit"] if facts[name]]
    text = "\n".join(["| | |", "|---|---|"] + [f"| {name} | {value} |" for name, value in rows])
    missing = [name for name in ["PyTorch", "DeepSpeed", "MPI"] if not facts[name]]
    if missing:
        text += f"\n\nNot installed, and left out: {', '.join(missing)}."
    if load > 0.5:
        text += f"\n\n**The machine was busy (load {load:.1f}). Do not publish these figures.**"
    return text


def peak_of(text):
    """GFLOP/s per core, as `cargo bench --bench step` prints them."""
    found = PEAK.search(text)
    return int(found[1]) if found else None


def check():
    """What can be wrong without running anything: benches, files, headings of the page, and the table above the others."""
    manifests = [ROOT / "tests/Cargo.toml", ROOT / "labs/tools/ds_to_universal/Cargo.toml"]
    declared = set(re.findall(r'\[\[bench\]\]\nname = "(\w+)"', "".join(path.read_text() for path in manifests)))
    used = set(re.findall(r'\bbench\(a, "(\w+)"', pathlib.Path(__file__).read_text()))
    assert used == declared, f"benches that are declared, {sorted(declared)}, and those run here, {sorted(used)}"
    pages = "".join((ROOT / path).read_text() for path in ("book/src/speed.md", "benches/README.md"))
    headings = re.findall(r"^## (.*)$", pages, re.M)
    assert all(headings.count(part[1]) == 1 for part in PARTS), headings
    format_of_step = (ROOT / "benches/step.rs").read_text()
    assert "MFU {mfu:.1}% of {:.0} GFLOP/s a core" in format_of_step, "benches/step.rs prints the peak in another way"
    assert peak_of("baby, 1 ranks: 9 tokens/s, MFU 74.0% of 108 GFLOP/s a core, 3 allocations a step") == 108
    assert peak_of("nothing") is None
    some = {"machine": "2 cores of X", "rustc": "rustc 1.95.0", "PyTorch": "2.15.0", "DeepSpeed": None, "MPI": None,
            "date": "2026-11-22", "commit": "abc1234"}
    quiet, busy = heading(some, 108, 0.1), heading(some, None, 2.04)
    assert quiet == ("| | |\n|---|---|\n| machine | 2 cores of X |\n| peak | 108 GFLOP/s per core |\n| rustc | rustc 1.95.0 |\n"
                     "| PyTorch | 2.15.0 |\n| date | 2026-11-22 |\n| commit | abc1234 |\n\n"
                     "Not installed, and left out: DeepSpeed, MPI."), quiet
    assert "(load 2.0). Do not" in busy and "not measured: add `step`" in busy, busy


def main():
    names = [part[0] for part in PARTS]
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--quick", action="store_true", help="one round, small models, no MPI, no release build: to see that it works")
    p.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names))
    p.add_argument("--check", action="store_true", help="run nothing: see that benches, page and this file agree")
    a = p.parse_args()
    if a.check:
        return check()
    load, known, begun = os.getloadavg()[0], facts(), False
    for name, title, make, needs in PARTS:
        if name not in a.only:
            continue
        text = make(a) if not needs or version(needs) else f"Left out: this Python has no {needs}."
        if not begun:
            # The first part measures the peak.
            print(heading(known, peak_of(text), load))
            begun = True
        print(f"\n## {title}\n\n{text}", flush=True)


if __name__ == "__main__":
    main()
