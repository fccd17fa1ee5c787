"""lab04 in PyTorch: the GPT under FSDP2's fully_shard, with ZeRO-3's gathers and with ZeRO-2's.

Alone:            python book/pytorch/lab04.py
Or by torchrun:   torchrun --nproc-per-node 4 book/pytorch/lab04.py
Beside lab04:     python book/pytorch/compare.py lab04
"""

from functools import partial

import torch
from torch.distributed import get_rank
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import shared
from shared import GPT, Calls, Job, adamw, counting, cross_entropy, mean

JOB = Job(ranks=4, layers=12, heads=4, block=64, batch=2)


# ANCHOR: heart
def train(model, lr, batches, stage):
    for block in model.blocks.values():  # a unit that is gathered together
        fully_shard(block, reshard_after_forward=stage == 3)  # ZeRO-2 keeps what it gathered
    fully_shard(model)  # all that is in no block
    optimizer = adamw(model, lr)  # after sharding: its parameters are the shards
    losses, norms = [], []
    for x, y in batches:
        loss = cross_entropy(model(x), y)  # gathers each block before it computes
        loss.backward()  # ZeRO-3 gathers again; gradients are reduced and scattered
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # only on this rank's shards
        optimizer.zero_grad()
        losses.append(mean(loss))
        norms.append(norm.full_tensor().item())
    return losses, norms
# ANCHOR_END: heart


def run(stage=3):
    batches = [JOB.batch_of(get_rank(), step) for step in range(JOB.steps)]
    model, calls = GPT(JOB), Calls()
    size = 4 * sum(p.numel() for p in model.parameters())
    if "reshard" in shared.BROKEN:
        stage = 5 - stage
    if "whole" in shared.BROKEN:  # the mesh's axes exchanged: four copies, each cut among one rank
        globals()["fully_shard"] = partial(fully_shard, mesh=init_device_mesh("cpu", (JOB.ranks, 1), mesh_dim_names=("copies", "shards")))
    losses, norms = train(model, JOB.lr, counting(batches, calls), stage)
    calls.of = [call for call in calls.of if call[0] != "all-reduce"]  # of the norm, and of the losses
    held = sum(p.to_local().numel() for p in model.parameters())
    return {"losses": losses, "norms": norms, "sent": calls.sent(JOB.ranks) / size, "held": held, "weights": shared.trained(model)}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
