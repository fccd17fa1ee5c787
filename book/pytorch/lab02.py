"""lab02 in PyTorch: the smallest training job, with an all-reduce for each gradient by hand.

Alone:            python book/pytorch/lab02.py
Or by torchrun:   torchrun --nproc-per-node 2 book/pytorch/lab02.py
Beside lab02:     python book/pytorch/compare.py lab02
"""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import shared
from shared import Calls, Stream, counting, made, mean

RANKS, STEPS, BATCH, SEED, LR = 2, 5, 64, 1337, 1e-3
WIDTHS = [128, 1024, 512, 256, 128, 128]


# ANCHOR: heart
def train(model, optimizer, batches):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)  # all ranks begin with rank 0's weights
    losses = []
    for x in batches:  # no other rank has these
        loss = (model(x) - x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)  # a sum; op=AVG would divide it, too
            p.grad /= dist.get_world_size()
        optimizer.step()
        losses.append(mean(loss))
    return losses
# ANCHOR_END: heart


def stack(seed):
    """The lab's five layers, begun as the lab begins them."""
    layers = [nn.Linear(*sizes) for sizes in zip(WIDTHS, WIDTHS[1:])]
    with torch.no_grad():
        for i, layer in enumerate(layers):
            bound = np.float32(1) / np.sqrt(np.float32(layer.in_features))
            for name, p in layer.named_parameters():
                numbers = Stream(seed, f"layers.{i}.{name}").uniform32(np.arange(p.numel()))
                p.copy_(torch.from_numpy(bound * (2 * numbers - 1)).view_as(p))
    if "weight" in shared.BROKEN:
        layers[0].weight.data *= 1.01
    return nn.Sequential(*layers)


def samples(rank, step):
    stream = Stream(SEED, "uniform").branch(rank).branch(step)
    return torch.from_numpy(stream.uniform32(np.arange(BATCH * WIDTHS[0]))).view(BATCH, -1)


def run():
    rank, calls = dist.get_rank(), Calls()
    model = stack(SEED + rank)
    batches = [samples(rank, step) for step in range(STEPS)]
    if "bytes" in shared.BROKEN:  # one gradient is forgotten
        sums, forgotten = dist.all_reduce, model[0].weight
        dist.all_reduce = lambda x, **how: None if x is forgotten.grad else sums(x, **how)
    losses = train(model, made(model, torch.optim.Adam(model.parameters(), LR)), counting(batches, calls))
    calls.of = [call for call in calls.of if call[1] > 4]  # without the loss
    return {"losses": losses, "sent": round(calls.sent(RANKS))}


if __name__ == "__main__":
    shared.main(run, RANKS)
