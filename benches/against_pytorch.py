#!/usr/bin/env python3
"""lab03 against PyTorch DDP (gloo) on this machine: the same model, optimizer, schedule and text, one compute thread a rank.

Set-up:  python3 -m venv venv && venv/bin/pip install torch numpy
Run:     venv/bin/python benches/against_pytorch.py

The two programs run in turn, several rounds of each configuration; a figure is the median over rounds of the median over the
steps after warm-up. Prints a Markdown table. Let nothing else run meanwhile.
"""
import argparse, json, os, pathlib, platform, statistics, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent
# name, lab03's preset, ranks, steps, and the same shape for the peer.
BABY = dict(layers=4, heads=4, embd=128, block=64, batch=12)
CHAR = dict(layers=6, heads=6, embd=384, block=256, batch=4)
CONFIGURATIONS = [("baby", BABY, 1, 100), ("baby", BABY, 2, 100), ("char", CHAR, 1, 16), ("char", CHAR, 2, 16)]


def run(command, **environment):
    """Runs to the end; returns standard output and the peak resident memory of the largest process, in MB."""
    # In a process of its own, so that its children's memory is not mixed with earlier ones'.
    code = "import resource,subprocess,sys; r=subprocess.run(sys.argv[1:]); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(r.returncode)"
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, int(done.stderr.split()[-1]) / 1024


def lab03(binary, data, preset, ranks, steps, dtype, before=(), muon=False):
    """Tokens per second, memory and MFU. `before` are words before the program, such as `mpirun -n 2`."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        _, memory = run([*before, binary, "--data", data, "--preset", preset, "--ranks", str(ranks), "--steps", str(steps),
                         "--eval-iters", "1", "--dtype", dtype, "--out", folder, "--metrics", str(metrics),
                         *(["--optimizer", "muon", "--muon-qkv", "whole"] if muon else [])])
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    measured = lines[len(lines) // 5:]
    return statistics.median(l["tps"] for l in measured), memory, statistics.median(l["mfu"] for l in measured)


def pytorch(data, shape, ranks, steps, dtype, before=(), muon=False):
    flags = [word for name, value in shape.items() for word in (f"--{name}", str(value))]
    flags += ["--bf16"] if dtype == "bf16" else []
    flags += ["--muon"] if muon else []
    text, memory = run([*before, sys.executable, str(HERE / "peers/gpt_torch.py"), "--data", data, "--ranks", str(ranks), "--steps", str(steps),
                        "--warmup", str(steps // 5), "--eval_iters", "0", *flags], OMP_NUM_THREADS="1")
    # One process a rank; each about as large as the largest.
    return json.loads(text.splitlines()[-1])["tokens_per_s"], memory * ranks


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default=str(HERE.parent / "data/play.txt"), help="the text, for both sides [default: the play]")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", help="a preset: baby or char")
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"], help="bf16: lab03's, and PyTorch's autocast")
    p.add_argument("--muon", action="store_true", help="both with Muon, on every rank")
    p.add_argument("--dev", action="store_true", help="the dev profile, which may be built already")
    a = p.parse_args()
    import torch
    profile = "dev" if a.dev else "release"
    subprocess.run(["cargo", "build", "--profile", profile, "--bin", "lab03"], cwd=HERE.parent, check=True)
    target = json.loads(subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=HERE.parent, check=True,
                                       capture_output=True, text=True).stdout)["target_directory"]
    binary = str(pathlib.Path(target) / ("debug" if a.dev else "release") / "lab03")
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    print(f"{cpu}, {os.cpu_count()} CPUs; PyTorch {torch.__version__}; {a.rounds} rounds in turn\n")
    print(f"| configuration, {a.dtype} | lab03 tokens/s | PyTorch tokens/s | ratio | of lab03 in f32 | MFU | lab03 MB | PyTorch MB |")
    print("|---|---|---|---|---|---|---|---|")
    for preset, shape, ranks, steps in CONFIGURATIONS:
        if a.only not in (None, preset):
            continue
        ours, theirs, wide = [], [], []
        for _ in range(a.rounds):
            ours.append(lab03(binary, a.data, preset, ranks, steps, a.dtype, muon=a.muon))
            theirs.append(pytorch(a.data, shape, ranks, steps, a.dtype, muon=a.muon))
            wide.append(ours[-1] if a.dtype == "f32" else lab03(binary, a.data, preset, ranks, steps, "f32", muon=a.muon))
        mid = lambda rows, i: statistics.median(row[i] for row in rows)
        ratio = statistics.median(o[0] / t[0] for o, t in zip(ours, theirs))
        own = statistics.median(o[0] / w[0] for o, w in zip(ours, wide))
        print(f"{preset} {ranks}: ratios {[round(o[0] / t[0], 3) for o, t in zip(ours, theirs)]}", file=sys.stderr)
        print(f"| {preset}, {ranks} rank{'s' if ranks > 1 else ''} | {mid(ours, 0):,.0f} | {mid(theirs, 0):,.0f} | {ratio:.2f} | {own:.2f} | "
              f"{mid(ours, 2):.0f}% | {mid(ours, 1):.0f} | {mid(theirs, 1):.0f} |", flush=True)


if __name__ == "__main__":
    main()
