#!/usr/bin/env python3
"""How lab03 grows with its ranks on this machine, or in this job: threads, MPI and PyTorch DDP (gloo), in turn.

Set-up:  cargo build --release --bin lab03; for MPI: cargo build --release --features mpi --bin lab03 --target-dir target-mpi;
         for gloo: python3 -m venv venv && venv/bin/pip install torch numpy
Run:     venv/bin/python benches/scaling.py [--pin] [--preset char] [--most 16]

1, 2, 4 … ranks, each with its own batch (weak scaling), as many as --most says [default: the CPUs that this process may use]. With
--pin a rank stays on one CPU: taskset gives threads and gloo as many CPUs as ranks, and mpirun binds each of its ranks to a core.
What is not installed is left out, and named. Prints a Markdown table; its efficiency is tokens per second and rank beside one rank's
of the same kind. Let nothing else run meanwhile. On a cluster, inside of a job: --mpirun "srun -n" or whatever `launch --print` says.
"""
import argparse, importlib.util, os, pathlib, platform, shlex, shutil, statistics, sys
from against_pytorch import BABY, CHAR, lab03, pytorch

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {"baby": (BABY, 100), "char": (CHAR, 16)}


def command(a, kind, ranks, cpus):
    """The words before the program; lab03 takes their number of ranks where they start processes."""
    if kind == "MPI":
        binding = (["--bind-to", "core"] if a.pin else ["--bind-to", "none"]) if a.mpirun == "mpirun" else []
        return [*shlex.split(a.mpirun), *([] if a.mpirun != "mpirun" else ["-n"]), str(ranks), *binding]
    return ["taskset", "--cpu-list", ",".join(map(str, cpus[:ranks]))] if a.pin else []


def tokens(a, kind, ranks, cpus):
    shape, steps = SHAPES[a.preset]
    before = command(a, kind, ranks, cpus)
    if kind == "gloo":
        return pytorch(a.data, shape, ranks, steps, "f32", before)[0]
    binary = pathlib.Path(a.mpi_bin if kind == "MPI" else a.bin) / "lab03"
    return lab03(str(binary), a.data, a.preset, ranks, steps, "f32", before)[0]


def main():
    cpus = sorted(os.sched_getaffinity(0))
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default=str(ROOT / "data/play.txt"), help="the text [default: the play]")
    p.add_argument("--preset", default="baby", choices=SHAPES)
    p.add_argument("--most", type=int, default=len(cpus), help="ranks at the most [default: the CPUs]")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--pin", action="store_true", help="each rank on a CPU of its own")
    p.add_argument("--bin", default=str(ROOT / "target/release"), help="the folder of lab03")
    p.add_argument("--mpi-bin", default=str(ROOT / "target-mpi/release"), help="the folder of lab03 with --features mpi")
    p.add_argument("--mpirun", default="mpirun", help='what starts ranks; their number follows [default: mpirun -n]')
    a = p.parse_args()
    if a.pin and a.most > len(cpus):
        sys.exit(f"error: --pin gives each rank a CPU of its own, and this process may use {len(cpus)} of them\nhelp: give --most {len(cpus)}")
    there = {"threads": (pathlib.Path(a.bin) / "lab03").exists(),
             "MPI": (pathlib.Path(a.mpi_bin) / "lab03").exists() and bool(shutil.which(shlex.split(a.mpirun)[0])),
             "gloo": importlib.util.find_spec("torch") is not None}
    kinds = [kind for kind, is_there in there.items() if is_there]
    if not kinds:
        sys.exit("error: nothing to run\nhelp: " + __doc__.split("Set-up:")[1].split("\n")[0].strip())
    sizes = [1 << i for i in range(a.most.bit_length()) if 1 << i <= a.most]
    found = {(kind, ranks): [] for kind in kinds for ranks in sizes}
    for _ in range(a.rounds):
        for kind, ranks in found:
            found[kind, ranks].append(tokens(a, kind, ranks, cpus))
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    left = [kind for kind in there if kind not in kinds]
    print(f"{cpu}, {len(cpus)} CPUs; {a.preset}, {a.rounds} rounds in turn, {'pinned' if a.pin else 'not pinned'}"
          + (f"; not here: {', '.join(left)}" if left else "") + "\n")
    print("| ranks | " + " | ".join(f"{kind}, tokens/s | efficiency" for kind in kinds) + " |")
    print("|---:" * (1 + 2 * len(kinds)) + "|")
    for ranks in sizes:
        medians = [(statistics.median(found[kind, ranks]), statistics.median(found[kind, 1])) for kind in kinds]
        print(f"| {ranks} | " + " | ".join(f"{now:,.0f} | {now / ranks / one:.2f}" for now, one in medians) + " |")


if __name__ == "__main__":
    main()
