#!/usr/bin/env python3
"""Where a training step's time goes, by file of this library and by function of others: what stands around the products' kernel.

Set-up:  apt-get install linux-perf binutils, or your system's packages of `perf` and `addr2line`
Run:     python3 benches/profile.py char            # or baby; then ranks, and f32 or bf16: the words of `--bench step`

`--bench step` times operations. This samples what the ranks' threads execute, so it also sees what operations have in common:
packing, memory that is zeroed, sums of gradients. Let nothing else run meanwhile.
"""
import argparse, collections, pathlib, re, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# `setarch -R` has programs loaded here, whose addresses in the file begin at 0.
LOADED_AT = 0x555555554000
OURS = re.compile(r"^(?!.*/(?:rustc|rust/library|registry)/).*/((?:src|bf16|labs|benches)/[a-z_/0-9]+\.rs):\d+", re.M)
# What many files use is counted for them.
SHARED = {"src/simd.rs", "src/tensor/math.rs"}
KERNELS = re.compile(r"microkernel|bf16/(kernel|tile)\.rs")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("words", nargs="*", default=["char"], metavar="WORD", help="preset, ranks and type [default: char 1 f32]")
    p.add_argument("--program", metavar="FILE", help="a step's program that is built already, to compare two commits")
    a = p.parse_args()
    program = str(a.program or build())
    samples = record(program, a.words)
    places = collections.Counter()
    where = files(program, list(samples))
    for sample, times in samples.items():
        places[where[sample]] += times
    whole = places.total()
    kernel = sum(times for place, times in places.items() if KERNELS.search(place))
    for place, times in places.most_common():
        if times >= whole / 200:
            print(f"{times / whole:6.1%}  {place[:100]}")
    print(f"outside of the kernel: {(whole - kernel) / kernel:.3f} of the time in it")


def build():
    command = ["cargo", "bench", "--profile", "dev", "--no-run", "--bench", "step"]
    # Files and functions: the profile itself has neither.
    lines = os.environ | {"CARGO_PROFILE_DEV_DEBUG": "line-tables-only"}
    done = subprocess.run(command, cwd=ROOT, env=lines, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)} has failed\n{done.stderr}")
    return ROOT / re.search(r"Executable .*\((.*)\)", done.stderr)[1]


def record(program, words):
    """How often ranks were seen at each address and function. The first seconds are the start: the peak, the first pages."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(pathlib.Path(folder) / "perf.data")
        perf = ["perf", "record", "--quiet", "-e", "cpu-clock", "-F", "4000", "-D", "3000", "-o", data]
        try:
            done = subprocess.run(["setarch", "-R", *perf, "--", program, *words], cwd=ROOT, capture_output=True, text=True)
        except FileNotFoundError as error:
            sys.exit(f"error: {error}\nhelp: apt-get install linux-perf, or your system's package of it")
        if done.returncode != 0:
            sys.exit(f"error: the profile has failed\n{done.stderr}help: is perf installed? apt-get install linux-perf")
        seen = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym"], capture_output=True, text=True, check=True).stdout
    print(done.stdout.splitlines()[0])
    samples = collections.Counter(re.findall(r"^\s*rank \d+\s+([0-9a-f]+) (.*?)\s*$", seen, re.M))
    if not samples:
        sys.exit("error: perf has seen no rank")
    return samples


def files(program, samples):
    """For each sample, the file of ours that it is in, inlined or not; else the function."""
    inside = [sample for sample in samples if 0 <= int(sample[0], 16) - LOADED_AT < 1 << 30]
    asked = "\n".join(hex(int(address, 16) - LOADED_AT) for address, _ in inside)
    said = subprocess.run(["addr2line", "-e", program, "-i", "-a"], input=asked, capture_output=True, text=True, check=True).stdout
    answers = re.split(r"^0x[0-9a-f]+\n", said, flags=re.M)[1:]
    where = {sample: sample[1] or "?" for sample in samples}
    for sample, answer in zip(inside, answers, strict=True):
        ours = OURS.findall(answer)
        if ours:
            where[sample] = next((file for file in ours if file not in SHARED), ours[0])
    return where


if __name__ == "__main__":
    main()
