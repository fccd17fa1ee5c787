"""The traces of the exercise lab03-profile, recorded again:

python labs/lab03/traces/record.py --bin target/debug     # PyTorch 2.15.0, gloo, two ranks of one machine

exposed.json   lab03 over a slow link
late.json      torch.profiler, DDP: rank 1's batches come late
bucket.json    torch.profiler, DDP: the first layer is registered third, and find_unused_parameters keeps DDP's buckets in that order

Each has the quietest of the recorded steps. Both ranks' clocks begin with it, and a rank's number takes its process's place.
What would not be read, or names the machine, is left out: lab03's track `waiting`, which would be the answer, and most of the
operations within PyTorch's.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
RANKS, STEPS, WIDTH, BATCH = 2, 40, 1024, 192
# What is kept of PyTorch's names, by their beginnings.
KEPT = ["ProfilerStep", "enumerate(DataLoader)", "DistributedDataParallel.forward", "aten::linear", "autograd::engine::evaluate_function",
        "c10d::allreduce_", "gloo:all_reduce", "Optimizer.step"]


class Batches(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return torch.ones(BATCH, WIDTH)


class Model(nn.Module):
    """DDP's first buckets are e and d, and then c or a: layers in the reverse of the order in which `__init__` has them."""

    def __init__(self, a_comes_third):
        super().__init__()
        for name in "bcade" if a_comes_third else "abcde":
            self.add_module(name, nn.Linear(WIDTH, WIDTH, bias=False))

    def forward(self, x):
        for layer in [self.a, self.b, self.c, self.d, self.e]:
            x = layer(x).relu()
        return x


def train(rank, late, a_comes_third, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    # A bucket is full with one layer.
    ddp = DistributedDataParallel(Model(a_comes_third), bucket_cap_mb=1, find_unused_parameters=a_comes_third)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    batches = DataLoader(Batches(late if rank == 1 else 0), batch_size=None)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=2, active=STEPS), record_shapes=True) as profiler:
        for _, batch in zip(range(3 + STEPS), batches):
            optimizer.zero_grad()
            ddp(batch).square().mean().backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/{rank}.json")
    dist.destroy_process_group()


def in_torch(late=0.0, a_comes_third=False):
    """Each rank's events, by step."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (late, a_comes_third, folder), nprocs=RANKS)
        ranks = [json.loads(pathlib.Path(f"{folder}/{rank}.json").read_text())["traceEvents"] for rank in range(RANKS)]
    steps = {}
    for rank, events in enumerate(ranks):
        events = [event for event in events if event["ph"] == "X" and event["name"].startswith(tuple(KEPT))]
        for step in [event for event in events if event["name"].startswith("ProfilerStep")]:
            end = step["ts"] + step["dur"]
            # By where it starts: a collective's thread may note its end when the step has gone on.
            of_step = [event for event in events if step["ts"] <= event["ts"] < end]
            # Which parameters were used, a number for each, is also all-reduced.
            of_step = [event for event in of_step if dims(event) != [[5]]]
            steps.setdefault(step["name"], {})[rank] = [{**event, "args": {"Input Dims": dims(event)} if dims(event) else {}} for event in of_step]
    return steps


def dims(event):
    return event["args"].get("Input Dims") if event["name"].startswith(("gloo", "c10d")) else None


def in_lab03(programs):
    """The same of lab03."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--steps {STEPS} --warmup 2 --eval-iters 1 --link 100us,40MB/s --trace {folder}/all.json"
        subprocess.run([programs.resolve() / "lab03", *flags.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        events = json.loads(pathlib.Path(f"{folder}/all.json").read_text())["traceEvents"]
    steps = {}
    for event in events:
        if event["ph"] == "X" and event["cat"] != "waiting":
            steps.setdefault(event["args"]["step"], {}).setdefault(event["pid"], []).append(event)
    return steps


def write(name, by, steps):
    """Writes the quietest step: the one that ends first, counted from where its ranks begin."""
    def length(events):
        return max(event["ts"] + event["dur"] for event in events) - min(event["ts"] for event in events)
    quiet = min((ranks for ranks in steps.values() if len(ranks) == RANKS), key=lambda ranks: sum(map(length, ranks.values())))
    out = []
    for rank, events in sorted(quiet.items()):
        begin = min(event["ts"] for event in events)
        out.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        threads = sorted({event["tid"] for event in events})
        for tid, thread in enumerate(threads):
            first = next(event["name"] for event in events if event["tid"] == thread)
            what = "communication" if "reduce" in first else "compute"
            out.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": what}})
        for event in sorted(events, key=lambda event: event["ts"]):
            out.append({**event, "ts": round(event["ts"] - begin, 3), "pid": rank, "tid": threads.index(event["tid"])})
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in out)
    (HERE / f"{name}.json").write_text(f'{{"otherData":{{"recorded by":"{by}"}},"traceEvents":[\n{lines}\n]}}\n')


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/debug")
    arguments.add_argument("names", nargs="*", default=["exposed", "late", "bucket"])
    given = arguments.parse_args()
    torch_is = f"torch.profiler, PyTorch {torch.__version__.split('+')[0]}, gloo"
    if "exposed" in given.names:
        write("exposed", "lab03 --link 100us,40MB/s --trace FILE", in_lab03(given.bin))
    if "late" in given.names:
        write("late", torch_is, in_torch(late=0.04))
    if "bucket" in given.names:
        write("bucket", torch_is, in_torch(a_comes_third=True))


if __name__ == "__main__":
    main()
