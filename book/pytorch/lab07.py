"""lab07 in PyTorch: one mesh of two axes. The GPT is cut by DTensor on one, and sharded by FSDP2 on the other.

Alone:            python book/pytorch/lab07.py
Or by torchrun:   torchrun --nproc-per-node 4 book/pytorch/lab07.py
Beside lab07:     python book/pytorch/compare.py lab07
"""

import logging

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import loss_parallel

import shared
from lab05 import cut
from shared import GPT, Job, adamw, clip, cross_entropy, mean, whole

JOB = Job(ranks=4, layers=4, heads=4, data_ranks=2)


# ANCHOR: heart
def divide(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))  # tensor ranks are neighbours
    cut(model, mesh["tensor"], sequence=False)  # lab05's: first the matrices are cut
    for block in model.blocks.values():
        fully_shard(block, mesh=mesh["data"], reshard_after_forward=False)
    fully_shard(model, mesh=mesh["data"])  # then replicas divide what a tensor rank has
    return mesh


def train(model, mesh, optimizer, data):
    losses, norms = [], []
    # ANCHOR: loop
    for x, y in data(mesh["data"].get_local_rank()):  # the same on a replica's tensor ranks
        with loss_parallel():
            loss = cross_entropy(model(x), y)
            loss.backward()
        norms.append(clip(model))  # one norm, over both axes
        optimizer.step()
        optimizer.zero_grad()
        # ANCHOR_END: loop
        losses.append(mean(whole(loss)))
    return losses, norms
# ANCHOR_END: heart


def run():
    # A norm over both axes is gathered in two steps. DTensor says on each rank that one would be faster.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    if "groups" in shared.BROKEN:  # the axes exchanged: data ranks are neighbours
        exchanged = DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("data", "tensor"))
        globals()["init_device_mesh"] = lambda *_, **names: exchanged
    model = GPT(JOB)
    mesh = divide(model)
    groups = [None] * JOB.ranks
    mine = [dist.get_process_group_ranks(mesh[axis].get_group()) for axis in ("tensor", "data")]
    dist.all_gather_object(groups, mine)
    by_axis = [sorted({tuple(mine[axis]) for mine in groups}) for axis in (0, 1)]

    def data(replica):
        replica = 0 if "data" in shared.BROKEN else replica
        return [JOB.batch_of(replica, step) for step in range(JOB.steps)]

    losses, norms = train(model, mesh, adamw(model, JOB.lr), data)
    return {"losses": losses, "norms": norms, "groups": by_axis}


if __name__ == "__main__":
    shared.main(run, JOB.ranks)
