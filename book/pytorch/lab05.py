"""lab05 in PyTorch: the GPT's matrices cut among two ranks by DTensor, and then its sequences as well.

Alone:            python book/pytorch/lab05.py
Or by torchrun:   torchrun --nproc-per-node 2 book/pytorch/lab05.py
Beside lab05:     python book/pytorch/compare.py lab05
"""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import shared
from shared import GPT, Calls, Job, adamw, clip, cross_entropy, mean, whole

JOB = Job(ranks=2, layers=4, heads=4, embd=64, data_ranks=1)


# ANCHOR: heart
def cut(model, mesh, sequence):
    stream = Shard(1) if sequence else Replicate()  # how ranks hold activations between matrices
    whole = PrepareModuleInput(input_layouts=stream, desired_input_layouts=Replicate())
    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=stream)
    plan = {
        "wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=stream),
        "blocks.*.attention": whole, "blocks.*.attention.[qkv]": columns,
        "blocks.*.attention.proj": rows,
        "blocks.*.mlp": whole, "blocks.*.mlp.fc": columns, "blocks.*.mlp.out": rows,
        "head": ColwiseParallel(input_layouts=stream, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence:  # each rank normalises its own positions, and looks them up
        mine = lambda dim: SequenceParallel(sequence_dim=dim, use_local_output=True)
        plan |= {"blocks.*.ln[12]": mine(1), "lnf": mine(1), "wpe": mine(0)}
        model.part = mesh.get_local_rank(), mesh.size()
    parallelize_module(model, mesh, plan)
    model.head.weight = model.wte.weight  # one matrix again
# ANCHOR_END: heart


def train(model, lr, batches, passes):
    optimizer = adamw(model, lr)
    losses, norms = [], []
    for x, y in batches:  # the same on both ranks
        with loss_parallel():  # of logits that stay cut
            with passes[0]:
                loss = cross_entropy(model(x), y)
            with passes[1]:
                loss.backward()
        norms.append(clip(model))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(whole(loss)))
    return losses, norms


def run(sequence=False):
    if "calls" in shared.BROKEN:
        sequence = not sequence
    mesh = init_device_mesh("cpu", (JOB.ranks,))
    batches = [JOB.batch_of(0, step) for step in range(JOB.steps)]
    model, passes = GPT(JOB), [Calls(), Calls()]
    cut(model, mesh, sequence)
    losses, norms = train(model, JOB.lr, batches, passes)
    # Only activations: the loss of cut logits needs three calls more, for a few numbers per token.
    activations = 4 * JOB.batch * JOB.block * JOB.embd
    calls = [sum(size == activations for _, size in one.of) // JOB.steps for one in passes]
    return {"losses": losses, "norms": norms, "calls": calls, "weights": shared.trained(model)}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
