#!/usr/bin/env python3
"""Runs labs 01 to 09, 12 and 13 beside the same loops in PyTorch: the same weights and batches in, the same numbers out.

Set-up (a virtual environment):  python3 -m venv venv && venv/bin/pip install torch numpy
With DeepSpeed, too:             DS_BUILD_OPS=0 venv/bin/pip install deepspeed==0.19.8
All labs:                        venv/bin/python book/pytorch/compare.py
Some:                            venv/bin/python book/pytorch/compare.py lab03 lab06
That each comparison can fail:   venv/bin/python book/pytorch/compare.py --broken

`--broken` also tries the checks of take_along.py: in right loops, of which they must name none, and with each mistake.

It runs the labs' programs in target/release or target/debug, whichever is newer, and builds them if neither is there. PyTorch
adds in another order, and so rounds in another way: numbers may differ as far as the column `allowed` says, losses and norms in
proportion to their size. A larger difference ends this with exit code 1.
"""

import argparse
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import lab01
import lab02
import lab03
import lab04
import lab05
import lab06
import lab07
import lab08
import lab09
import lab12
import lab13
import one_device
import shared
import taken_along

if WITH_DEEPSPEED := importlib.util.find_spec("deepspeed") is not None:
    import deepspeed04
    import deepspeed08
    import deepspeed09

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = pathlib.Path(__file__).resolve().with_name("output.txt")
# Of losses and norms, in proportion (HALF: of a model in fp16); and of weights, each of which the optimizer has moved by up to 5e-3.
NUMBERS, HALF, WEIGHTS = 1e-5, 1e-3, 1e-4


class Comparison:
    """One quantity of a lab's run and of PyTorch's. `allowed` is the largest difference; without it, both must be equal."""

    def __init__(self, what, ours, theirs, allowed=None, in_proportion=True):
        self.what, self.allowed = what, allowed
        if allowed is None:
            self.holds, self.difference = ours == theirs, None
            return
        ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        difference = np.abs(ours - theirs) if ours.shape == theirs.shape else np.array(np.nan)
        self.difference = np.max(difference / np.abs(ours) if in_proportion else difference)
        self.holds = bool(self.difference <= allowed)  # not, if it is no number

    def row(self, lab):
        found = "equal" if self.holds else "not equal"
        if self.allowed is not None:
            found = f"{self.difference:.0e}"
        allowed = "" if self.allowed is None else f"{self.allowed:.0e}"
        return f"{lab:11}  {self.what:50} {found:>10}  {allowed:>7}  {'✓' if self.holds else '✗'}"


class Labs:
    """The labs' programs. A command that several comparisons need runs once."""

    def __init__(self, programs, folder):
        self.programs, self.folder = programs, pathlib.Path(folder)

    @functools.cache
    def run(self, lab, *flags, metrics=False):
        """Runs a lab. Returns what it printed, the folder with its files, and its metrics, a row per step."""
        out = self.folder / f"{lab}-{time.monotonic_ns()}"
        command = [self.programs / lab, *flags, "--out", out]
        if metrics:
            command += ["--metrics", out.with_suffix(".jsonl")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SHARDLAB_")}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=self.folder,
                              env=environment | {"NO_COLOR": "1"})
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        rows = [json.loads(line) for line in out.with_suffix(".jsonl").read_text().splitlines()] if metrics else []
        return done.stdout, out, rows


def find(pattern, text):
    """The groups of the first match."""
    match = re.search(pattern, text, re.MULTILINE)
    if not match:
        sys.exit(f"error: a lab did not print {pattern!r}:\n{text}")
    return match.groups()


def losses_and_norms(rows):
    return [row["loss"] for row in rows] + [row["grad_norm"] for row in rows]


def weights(folder, trained):
    """The weights that a lab saved, and PyTorch's."""
    saved = shared.ours(shared.read_safetensors(folder / "model.safetensors"))
    if saved.keys() != trained.keys():
        sys.exit(f"error: {folder} has other weights than PyTorch's model: {saved.keys() ^ trained.keys()}")
    ours, theirs = (np.concatenate([tensors[name].numpy().ravel() for name in saved]) for tensors in (saved, trained))
    return Comparison(f"{len(ours):,} weights after training", ours, theirs, WEIGHTS, in_proportion=False)


def start(labs, broken):
    # A learning rate that changes no weight: what lab09 saves is what it began with.
    flags = lab09.JOB.flags("ranks", "batch", "grad-accum", "sampler", "steps", "lr", "min-lr")
    _, out, _ = labs.run("lab09", *flags, "--steps", 2, "--save-after", 1, "--lr", 1e-30, "--min-lr", 0, "--to", "dp=1")
    saved = lab09.read(out / "checkpoints" / "job-0-universal")["fp32"]
    drawn = shared.ours(lab09.JOB.weights())
    if "weight" in broken:
        drawn["wte.weight"][0, 0] += 1e-8
    same = sum(int((drawn[name] == value).sum()) for name, value in saved.items())
    whole = sum(value.numel() for value in drawn.values())
    yield Comparison(f"initial weights, bitwise: {whole:,}", same, whole)


def loop(labs, broken):
    flags = ["--ranks", 1, "--steps", lab02.STEPS, "--batch", lab02.BATCH, "--lr", lab02.LR, "--seed", lab02.SEED]
    _, _, rows = labs.run("lab02", *flags, metrics=True)
    there = shared.launch(one_device.run, 1, broken=broken)
    yield Comparison(f"one device: {len(rows)} losses", [row["loss"] for row in rows], there["losses"], NUMBERS)


def lab01s(labs, broken):
    there = shared.launch(lab01.run, lab01.RANKS, broken=broken)
    for name, what in (("naive", "an all-reduce through rank 0"), ("ring", "around a ring")):
        text, _, _ = labs.run("lab01", "--ranks", lab01.RANKS, "--algorithm", name, "--rounds")
        # What ranks have after the last round: the right half of the last drawing.
        rows = re.findall(r"rank \d │[^│]*rank \d │(.*)", text)[-lab01.RANKS:]
        yield Comparison(f"{what}: sums of {lab01.RANKS} ranks", [[int(one) for one in re.findall(r"\d+", row)] for row in rows], there[name])
        sent = find(r"rank 0 sent (\d+) messages, (\d+) bytes", text)
        yield Comparison(f"rank 0 sends {sent[0]} messages, {sent[1]} bytes", [int(one) for one in sent], list(there[f"{name} sent"]))


def lab02s(labs, broken):
    flags = ["--ranks", lab02.RANKS, "--steps", lab02.STEPS, "--batch", lab02.BATCH, "--lr", lab02.LR, "--seed", lab02.SEED]
    text, _, rows = labs.run("lab02", *flags, metrics=True)
    there = shared.launch(lab02.run, lab02.RANKS, broken=broken)
    yield Comparison(f"all_reduce by hand: {len(rows)} losses", [row["loss"] for row in rows], there["losses"], NUMBERS)
    sent = int(find(r"sent +([\d,]+) bytes per rank per step", text)[0].replace(",", ""))
    yield Comparison(f"bytes that a rank sends in a step: {sent:,}", sent, there["sent"])


def lab03s(labs, broken):
    _, out, rows = labs.run("lab03", *lab03.JOB.flags(), "--eval-iters", 1, metrics=True)
    there = shared.launch(lab03.run, lab03.JOB.ranks, broken=broken)
    yield Comparison(f"DDP and no_sync: {len(rows)} losses", [row["loss"] for row in rows], there["losses"], NUMBERS)
    yield Comparison("norms of their gradients", [row["grad_norm"] for row in rows], there["norms"], NUMBERS)
    yield weights(out, there["weights"])


def lab04s(labs, broken):
    for stage in (3, 2):
        name = f"fully_shard as ZeRO-{stage}: "
        text, out, rows = labs.run("lab04", *lab04.JOB.flags(), "--zero", stage, "--eval-iters", 1, metrics=True)
        there = shared.launch(lab04.run, lab04.JOB.ranks, stage, broken=broken)
        yield Comparison(f"{name}losses, norms", losses_and_norms(rows), there["losses"] + there["norms"], NUMBERS)
        yield weights(out, there["weights"])
        sent = find(r"in numbers +([\d.]+) Ψ", text)[0]
        yield Comparison(f"bytes that a rank sends in a step: {sent} Ψ", sent, f"{there['sent']:.2f}")
        # The optimizer's part: its two moments are 8 bytes per parameter that a rank updates.
        number, unit = find(r"^  optimizer +█+░* +([\d.]+) (kB|MB)", text)
        held = float(number) * {"kB": 1e3, "MB": 1e6}[unit] / 8
        yield Comparison("parameters that a rank updates", held, there["held"], 0.01)


def lab05s(labs, broken):
    # Only the lab's table of calls needs this run: the calls of a step do not depend on the number of steps.
    table, _, _ = labs.run("lab05", "--layers", lab05.JOB.layers, "--steps", 2)
    counts = find(r"collective calls per step …+ (\d+) \+ (\d+), (\d+) \+ (\d+)", table)
    for sequence, calls in ((False, counts[:2]), (True, counts[2:])):
        name, flag = ("SequenceParallel: ", ["--sp"]) if sequence else ("ColwiseParallel, RowwiseParallel: ", [])
        _, out, rows = labs.run("lab05", *lab05.JOB.flags(), "--tp", 2, *flag, "--eval-iters", 1, metrics=True)
        there = shared.launch(lab05.run, lab05.JOB.ranks, sequence, broken=broken)
        yield Comparison(f"{name}losses, norms", losses_and_norms(rows), there["losses"] + there["norms"], NUMBERS)
        yield weights(out, there["weights"])
        yield Comparison(f"calls, forward + backward: {' + '.join(calls)}", [int(one) for one in calls], there["calls"])


def lab06s(labs, broken):
    job = lab06.JOB
    flags = ["--stages", job.ranks, "--micro-batches", job.grad_accum, *job.flags("ranks", "grad-accum", "sampler")]
    there = shared.launch(lab06.run, job.ranks, broken=broken)
    for name, (_, chunks) in lab06.SCHEDULES.items():
        text, _, _ = labs.run("lab06", *flags, "--schedule", name, "--pace", 0)
        ends = [float(loss) for loss in find(r"loss +([\d.]+) in step 1, ([\d.]+) in step", text)]
        yield Comparison(f"{name}: losses of steps 1 and {job.steps}", ends, [there[name][0], there[name][-1]], NUMBERS)
        log, _, _ = labs.run("lab06", *flags, "--schedule", name, "--print-order")
        orders = [passes(log, rank, job.ranks, chunks) for rank in range(job.ranks)]
        count = sum(len(order.split()) for order in orders)
        yield Comparison(f"{name}: order of {count} passes", orders, there[f"{name} orders"])


def passes(log, rank, ranks, chunks):
    """A rank's passes in the log of `--print-order`, as lab06.py notes them. The log numbers visits to all chunks of a rank."""
    found = []
    for work, number in re.findall(rf"rank {rank} (\w+) start tensor (\d+)", log):
        turn, visit = divmod(int(number), ranks * chunks)
        chunk = visit // ranks if work == "forward" else chunks - 1 - visit // ranks
        found.append(f"{chunk * ranks + rank}{work[0].upper()}{turn * ranks + visit % ranks}")
    return " ".join(found)


def lab07s(labs, broken):
    flags = [*lab07.JOB.flags("grad-accum", "sampler"), "--tp", 2, "--pp", 1, "--micro-batches", 1]
    text, _, _ = labs.run("lab07", *flags)
    there = shared.launch(lab07.run, lab07.JOB.ranks, broken=broken)
    rows = [find(rf"^ +{step} +([\d.]+) +[\d.]+ +([\d.]+)", text.split("loss  of 1 rank")[1]) for step in (1, lab07.JOB.steps)]
    ours = [float(number) for row in rows for number in row]
    theirs = [there[what][step] for step in (0, -1) for what in ("losses", "norms")]
    yield Comparison("mesh of data and tensor ranks: losses, norms", ours, theirs, NUMBERS)
    groups = [find(rf"^  {axis} +((?:\[[\d ]+\] ?)+)", text)[0] for axis in ("tensor", "data")]
    ours = [[tuple(map(int, group.split())) for group in re.findall(r"\[([\d ]+)\]", axis)] for axis in groups]
    yield Comparison(f"groups of ranks: {groups[0].strip()}, {groups[1].strip()}", ours, there["groups"])


def lab08s(labs, broken):
    flags = [*lab08.JOB.flags(), "--no-poison", "--train-range-to-skip", 3, 4]
    _, _, rows = labs.run("lab08", *flags, metrics=True)
    there = shared.launch(lab08.run, lab08.JOB.ranks, broken=broken)
    taken = [not row["skipped"] for row in rows]
    what = f"GradScaler: steps that both ranks take: {sum(taken)} of {len(taken)}"
    yield Comparison(what, [taken] * lab08.JOB.ranks, there["taken"])
    kept = [row for row in rows if not row["skipped"]]
    theirs = [[one for one, row in zip(there[what], rows) if not row["skipped"]] for what in ("losses", "norms")]
    yield Comparison("their losses and norms", losses_and_norms(kept), theirs[0] + theirs[1], NUMBERS)


def lab09s(labs, broken):
    job = lab09.JOB
    flags = [*job.flags("ranks", "batch", "grad-accum", "sampler"), "--global-batch", job.batch * job.ranks,
             "--save-after", lab09.SAVE_AFTER, "--from", f"dp={job.ranks}", "--to", f"dp={lab09.FEWER}"]
    text, out, _ = labs.run("lab09", *flags)
    universal = out / "checkpoints" / "job-0-universal"
    there = lab09.run(universal, broken)
    kinds = lab09.read(universal)
    saved = {name: [lab09.sha256(kinds[kind][name]) for kind in lab09.KINDS] for name in kinds["fp32"]}
    what = f"DCP, saved on {job.ranks} ranks, loaded on {lab09.FEWER}: {3 * len(saved)} SHA-256"
    yield Comparison(what, saved, there["loaded"])
    ends = [float(loss) for loss in find(rf"dp={lab09.FEWER}\S* +bitwise \S +([\d.]+) +([\d.]+)", text)]
    theirs = [there["losses"][0], there["losses"][-1]]
    yield Comparison(f"losses of steps {lab09.SAVE_AFTER + 1} and {job.steps}", ends, theirs, NUMBERS)


def lab12s(labs, broken):
    strategy = f"cp={lab12.JOB.ranks},cp-comm=ring"
    flags = [*lab12.JOB.flags("ranks", "grad-accum"), "--strategy", strategy, "--documents", 1]
    _, _, rows = labs.run("lab12", *flags, metrics=True)
    there = shared.launch(lab12.run, lab12.JOB.ranks, broken=broken)
    yield Comparison("ring attention: losses and norms", losses_and_norms(rows), there["losses"] + there["norms"], NUMBERS)


def lab13s(labs, broken):
    flags = [*lab13.JOB.flags("grad-accum"), "--experts", lab13.EXPERTS, "--top", lab13.TOP]
    _, _, rows = labs.run("lab13", *flags, metrics=True)
    there = shared.launch(lab13.run, lab13.JOB.ranks, broken=broken)
    yield Comparison("all_to_all_single, experts: losses", [row["loss"] for row in rows], there["losses"], NUMBERS)
    yield Comparison("norms of all ranks' gradients", [row["grad_norm"] for row in rows], there["norms"], NUMBERS)


def deepspeed04s(labs, broken):
    for stage in (1, 2, 3):
        _, _, rows = labs.run("lab04", *lab04.JOB.flags(), "--zero", stage, "--eval-iters", 1, metrics=True)
        there = shared.launch(deepspeed04.run, lab04.JOB.ranks, stage, broken=broken)
        yield Comparison(f"DeepSpeed, ZeRO-{stage}: losses, norms", losses_and_norms(rows), there["losses"] + there["norms"], NUMBERS)


def deepspeed08s(labs, broken):
    job, bad = deepspeed08.JOB, [6, 7]
    _, _, rows = labs.run("lab08", *job.flags(), "--no-poison", "--train-range-to-skip", *bad, metrics=True)
    text, _, _ = labs.run("lab08", *job.flags(), "--no-poison", "--fp16")
    rule = [int(power) - 16 for power in find(r"from 0\.17\.1 on +([\d ]+)$", text)[0].split()]
    for stage, right in ((1, rule), (0, deepspeed08.STAGE_0)):
        there = shared.launch(deepspeed08.run, job.ranks, stage, broken=broken)
        powers = [round(np.log2(scale)) - deepspeed08.POWER for scale in there["scales"]]
        what = "as lab08's rule" if stage else "without hysteresis"
        yield Comparison(f"DeepSpeed, stage {stage}: scales, {what}", right, powers)
        if stage:
            kept = [step for step, row in enumerate(rows) if not row["skipped"]]
            yield Comparison("steps that it takes", [not row["skipped"] for row in rows], there["taken"])
            yield Comparison("their losses, in fp16", [rows[step]["loss"] for step in kept], [there["losses"][step] for step in kept], HALF)


def deepspeed09s(labs, broken):
    job = lab09.JOB
    flags = [*job.flags("ranks", "batch", "grad-accum", "sampler"), "--global-batch", job.batch * job.ranks,
             "--save-after", lab09.SAVE_AFTER, "--from", f"dp={job.ranks}", "--to", f"dp={lab09.FEWER}"]
    text, _, _ = labs.run("lab09", *flags)
    there = deepspeed09.run(broken)
    what = f"DeepSpeed, {job.ranks} ranks save, {lab09.FEWER} load: {3 * len(there['saved'])} SHA-256"
    yield Comparison(what, there["saved"], there["loaded"])
    ends = [float(loss) for loss in find(rf"dp={lab09.FEWER}\S* +bitwise \S +([\d.]+) +([\d.]+)", text)]
    theirs = [there["losses"][lab09.SAVE_AFTER], there["losses"][-1]]
    yield Comparison(f"losses of steps {lab09.SAVE_AFTER + 1} and {job.steps}", ends, theirs, NUMBERS)


# What is compared, and the mistakes that `--broken` makes in PyTorch's run, one after the other.
LABS = {
    "start": (start, ["weight"]),
    "loop": (loop, ["weight"]),
    "lab01": (lab01s, ["numbers", "bytes"]),
    "lab02": (lab02s, ["weight", "bytes"]),
    "lab03": (lab03s, ["weight", "twice"]),
    "lab04": (lab04s, ["weight", "reshard", "whole"]),
    "lab05": (lab05s, ["weight", "calls"]),
    "lab06": (lab06s, ["weight", "order"]),
    "lab07": (lab07s, ["data", "groups"]),
    "lab08": (lab08s, ["weight", "steps"]),
    "lab09": (lab09s, ["weight", "moments"]),
    "lab12": (lab12s, ["weight", "positions"]),
    "lab13": (lab13s, ["divided", "norm"]),
}
if WITH_DEEPSPEED:
    LABS |= {
        "deepspeed04": (deepspeed04s, ["weight"]),
        "deepspeed08": (deepspeed08s, ["weight", "steps", "stage"]),
        "deepspeed09": (deepspeed09s, ["weight", "moments"]),
    }


def programs(folder):
    """The folder with the labs' programs; builds them if there is none."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    known = [pathlib.Path(folder)] if folder else [target / "release", target / "debug"]
    there = [one.resolve() for one in known if all((one / f"lab{number:02}").is_file() for number in [*range(1, 10), 12, 13])]
    if there:
        return max(there, key=lambda one: (one / "lab03").stat().st_mtime)
    if folder:
        sys.exit(f"error: {folder} has not all labs\nhelp: cargo build --release --bins, and --bin target/release")
    subprocess.run(["cargo", "build", "--release", "--offline", "--bins"], cwd=ROOT, check=True)
    return known[0].resolve()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("labs", nargs="*", metavar="LAB", help="only these, such as lab03 [default: all]")
    p.add_argument("--bin", metavar="FOLDER", help="the folder with the labs' programs")
    p.add_argument("--broken", action="store_true", help="make mistakes in PyTorch's runs: each comparison must fail for one")
    p.add_argument("--write", action="store_true", help=f"write what is printed to {OUTPUT.name}, which the book shows")
    a = p.parse_args()
    if unknown := set(a.labs) - set(LABS):
        p.error(f"not compared: {', '.join(sorted(unknown))}; give some of {', '.join(LABS)}")
    torch.set_num_threads(1)
    folder, said, wrong, count = programs(a.bin), [], 0, 0

    def say(line):
        print(line, flush=True)
        said.append(line)

    print(f"labs: {folder}", file=sys.stderr)
    if not WITH_DEEPSPEED:
        print("skipped: the loops in DeepSpeed, which this Python does not have", file=sys.stderr)
    say(f"PyTorch {torch.__version__.split('+')[0]}, gloo, {os.uname().sysname}: the labs beside the same loops in PyTorch\n")
    say(f"{'lab':11}  {'compared':50} {'difference':>10}  allowed" if not a.broken else f"{'lab':11}  {'compared':50} mistakes")
    with tempfile.TemporaryDirectory() as temporary:
        labs = Labs(folder, temporary)
        for lab in a.labs or LABS:
            compare, mistakes = LABS[lab]
            if not a.broken:
                for comparison in compare(labs, set()):
                    say(comparison.row(lab))
                    count, wrong = count + 1, wrong + (not comparison.holds)
                continue
            for same in zip(*(compare(labs, {mistake}) for mistake in mistakes)):
                noticed = [mistake for mistake, comparison in zip(mistakes, same) if not comparison.holds]
                say(f"{lab:11}  {same[0].what:50} {'fails for: ' + ', '.join(noticed) if noticed else 'NEVER FAILS'}")
                count, wrong = count + 1, wrong + (not noticed)
    all_hold, some_do_not = ("can fail", "cannot fail") if a.broken else ("hold", "do not hold")
    say(f"\n{wrong} of {count} comparisons {some_do_not} ✗" if wrong else f"\nall {count} comparisons {all_hold} ✓")
    unfit = []
    if a.broken:
        say("\nThe checks of take_along.py:")
        unfit, evidence = taken_along.table(say, a.labs)
        for line in ["", *evidence, "", *(f"{one} ✗" for one in unfit)]:
            say(line)
    if a.write:
        OUTPUT.write_text("$ venv/bin/python book/pytorch/compare.py\n" + "\n".join(said) + "\n")
    sys.exit(bool(wrong or unfit))


if __name__ == "__main__":
    main()
