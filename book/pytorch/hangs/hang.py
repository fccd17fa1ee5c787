"""Real hangs, and what PyTorch's flight recorder says of them: the dumps in the folders beside this file.

Each function below is a job of four ranks on gloo that stops. After a few seconds every rank that
still lives writes its dump, as a thread of a real job would: as a pickle, which has the lines of the
source, or as JSON, which has none. `py-spy` adds stacks where there is one on PATH.

    python book/pytorch/hangs/hang.py            # all of them, into folders beside this file
    python book/pytorch/hangs/hang.py skips      # one

The paths in a dump lose what belongs to one machine; nothing else is changed.
"""

import os
import pickletools
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

os.environ["TORCH_FR_BUFFER_SIZE"] = os.environ.get("TORCH_FR_BUFFER_SIZE", "200")
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 4
HERE = Path(__file__).resolve().parent
ASK_AFTER = 8  # seconds: all ranks that will ever come have come


def steps(count):
    """Steps in which all ranks do the same: the calls that end."""
    for _ in range(count):
        dist.all_reduce(torch.ones(4))


def load_batch():
    """A rank that is somewhere else: a data loader that has no more data, a file system that hangs."""
    time.sleep(1000)


def skips(rank):
    steps(4)
    if rank == 2:
        load_batch()
    dist.all_reduce(torch.ones(4))


def goes_on(rank):
    """Rank 2 leaves out the all-reduce of an odd batch, and goes on to the barrier."""
    steps(4)
    if rank != 2:
        dist.all_reduce(torch.ones(4))
    dist.barrier()


def rank_0_alone(rank):
    steps(5)
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    load_batch()


def other_order(rank):
    steps(2)
    loss, weights = torch.ones(1), torch.ones(8)
    if rank == 1:
        dist.broadcast(weights, 0)
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.broadcast(weights, 0)


def other_length(rank):
    steps(2)
    dist.all_reduce(torch.ones(3 if rank == 3 else 4))
    dist.barrier()


def wrong_group(rank):
    """Ranks 0, 1 and 2 use a group that was made of ranks 0, 1 and 3. For rank 2 the call does nothing."""
    steps(2)
    group = dist.new_group([0, 1, 3], group_desc="experts")
    if rank != 3:
        dist.all_reduce(torch.ones(4), group=group)
    load_batch()


def dies(rank):
    steps(3)
    if rank == 3:
        os._exit(0)  # a code other than 0 would end the others, too
    dist.all_reduce(torch.ones(4))


def late(rank):
    """Rank 0 writes a checkpoint while the others wait. It would come."""
    steps(3)
    if rank == 0:
        time.sleep(ASK_AFTER + 2)
    dist.barrier()


def came_late(rank):
    """As before, but it came: the dump was asked for too late to see anyone wait."""
    steps(3)
    if rank == 0:
        time.sleep(ASK_AFTER / 2)
    dist.barrier()
    load_batch()


def never_sent(rank):
    """A pipeline whose rank 1 waits for micro-batch 2, which rank 0 did not send."""
    steps(1)
    if rank == 0:
        dist.send(torch.ones(4), 1)
    if rank == 1:
        dist.recv(torch.ones(4), 0)
        dist.recv(torch.ones(4), 0)
    dist.barrier()


def wrapped(rank):
    """A long job, whose recorder keeps its last 200 calls only."""
    steps(300)
    if rank == 1:
        load_batch()
    steps(1)


def circle(rank):
    """Two groups of the same ranks, called in two orders: each rank waits for the other."""
    one, other = dist.new_group([0, 1], group_desc="one"), dist.new_group([0, 1], group_desc="other")
    if rank < 2:
        steps_of = (one, other) if rank == 0 else (other, one)
        for group in steps_of:
            dist.all_reduce(torch.ones(4), group=group)
    load_batch()


HANGS = [skips, goes_on, rank_0_alone, other_order, other_length, wrong_group, dies, late, came_late, never_sent, wrapped, circle]
AS_JSON = [goes_on, rank_0_alone, other_length, wrapped]


def neutral(text):
    text = text.replace(str(HERE) + "/", "").replace(str(HERE.parents[2]) + "/", "")
    text = re.sub(r'[^" (]*/(site-packages/)', r"\1", text)
    return re.sub(r'[^" (]*/(lib/python3)', r"\1", text)


def neutral_pickle(data):
    """The pickle with each path made neutral: a text is an X, its length, its bytes."""
    begins = [at for _, _, at in pickletools.genops(data)] + [len(data)]
    parts = []
    for (instruction, text, at), end in zip(pickletools.genops(data), begins[1:]):
        if instruction.name == "BINUNICODE":
            text = neutral(text).encode()
            parts.append(b"X" + len(text).to_bytes(4, "little") + text)
        else:
            parts.append(data[at:end])
    return b"".join(parts)


def dump(hang, rank, folder):
    time.sleep(ASK_AFTER)
    recorder = torch._C._distributed_c10d
    if hang in AS_JSON:
        (folder / f"rank{rank}.json").write_bytes(recorder._dump_fr_trace_json())
    else:
        (folder / f"rank{rank}.pickle").write_bytes(neutral_pickle(recorder._dump_fr_trace()))
    if shutil.which("py-spy") and hang in (skips, rank_0_alone):
        stacks = subprocess.run(["py-spy", "dump", "--pid", str(os.getpid())], capture_output=True, text=True).stdout
        stacks = re.sub(r"(?m)^Process \d+: .*", f"Process {100 + rank}: python hang.py", neutral(stacks))
        stacks = re.sub(r"(?m)^(Python \S+) .*", r"\1 (python3)", stacks)
        (folder / f"rank{rank}.txt").write_text(stacks)
    time.sleep(4)  # nobody leaves while another is asked
    os._exit(0)


def main(rank, hang, folder, meet):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=100))
    dist.barrier()
    asker = threading.Thread(target=dump, args=(hang, rank, folder))
    asker.start()
    try:
        hang(rank)
    except RuntimeError as error:  # a rank died, or lengths differ
        print(hang.__name__, rank, str(error).splitlines()[0])
    asker.join()


if __name__ == "__main__":
    for hang in HANGS:
        if sys.argv[1:] in ([], [hang.__name__]):
            folder = HERE / hang.__name__
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with tempfile.TemporaryDirectory() as meet:
                try:
                    mp.spawn(main, (hang, folder, meet + "/meet"), nprocs=RANKS)
                except mp.ProcessExitedException as error:
                    print(hang.__name__, error)
