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
    """Cuts heads, columns of the MLP and the vocabulary among the mesh's ranks; with `sequence`, the stream between them as well."""
    stream = Shard(1) if sequence else Replicate()  # how ranks hold the residual stream
    column, row = ColwiseParallel, lambda **more: RowwiseParallel(output_layouts=stream, **more)
    enter = lambda: PrepareModuleInput(input_layouts=stream, desired_input_layouts=Replicate())
    norm = lambda *names: {name: SequenceParallel(use_local_output=True) for name in names if sequence}
    for block in model.blocks.values():
        parallelize_module(block, mesh, norm("ln1", "ln2") | {
            "attention": enter(), "attention.[qkv]": column(), "attention.proj": row(),
            "mlp": enter(), "mlp.fc": column(), "mlp.out": row(),
        })
    logits = column(input_layouts=stream, output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, norm("lnf") | {"wte": row(input_layouts=Replicate()), "head": logits})
    model.head.weight = model.wte.weight  # one matrix again
    if sequence:  # each rank looks up its own positions
        parallelize_module(model.wpe, mesh, SequenceParallel(sequence_dim=0, use_local_output=True))
        model.part = mesh.get_local_rank(), mesh.size()
    return model
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
    model, passes = cut(GPT(JOB), mesh, sequence), [Calls(), Calls()]
    losses, norms = train(model, JOB.lr, batches, passes)
    # Activations alone: the loss of cut logits needs three calls more, for a few numbers per token.
    activations = 4 * JOB.batch * JOB.block * JOB.embd
    calls = [sum(size == activations for _, size in one.of) // JOB.steps for one in passes]
    return {"losses": losses, "norms": norms, "calls": calls, "end": shared.end(model)}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
