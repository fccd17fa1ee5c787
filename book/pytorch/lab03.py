"""lab03 in PyTorch: a GPT under DistributedDataParallel, with two micro-batches per step.

Alone:            python book/pytorch/lab03.py
Or by torchrun:   torchrun --nproc-per-node 2 book/pytorch/lab03.py
Beside lab03:     python book/pytorch/compare.py lab03
"""

from contextlib import nullcontext

import torch
from torch.distributed import get_rank
from torch.nn.parallel import DistributedDataParallel

import shared
from shared import GPT, Job, adamw, cross_entropy, mean

JOB = Job(ranks=2, grad_accum=2)


# ANCHOR: heart
def train(model, optimizer, batches):
    ddp = DistributedDataParallel(model)  # rank 0's weights to all ranks
    losses, norms = [], []
    for micro_batches in batches:  # one step's, which only this rank draws
        optimizer.zero_grad()
        loss = 0
        for i, (x, y) in enumerate(micro_batches):
            is_last = i + 1 == len(micro_batches)
            with nullcontext() if is_last else ddp.no_sync():
                share = cross_entropy(ddp(x), y) / len(micro_batches)
                share.backward()  # the last one averages gradients over the ranks
            loss += share.detach()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(mean(loss))
        norms.append(norm.item())
    return losses, norms
# ANCHOR_END: heart


def run():
    batches = [[JOB.batch_of(get_rank(), step, micro) for micro in range(JOB.grad_accum)] for step in range(JOB.steps)]
    model = GPT(JOB)
    if "twice" in shared.BROKEN:  # DDP has divided by the ranks already
        for p in model.parameters():
            p.register_hook(lambda gradient: gradient / JOB.ranks)
    losses, norms = train(model, adamw(model, JOB.lr), batches)
    return {"losses": losses, "norms": norms, "weights": shared.trained(model)}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
