#!/usr/bin/env bash
# torch 2.15.0, gloo, 4 ranks on CPU: what each way of sharing a model does when its ranks begin with different weights (a seed per
# rank, or nn.Module made before any seed is set).
# One would guess: one copy wins, as under DistributedDataParallel, which sends rank 0's weights to all when it wraps the model.
# What happens: DDP and parallelize_module take rank 0's. fully_shard sends nothing: each rank keeps its own rows, so the model is
# a patchwork of all beginnings. On a 2-D mesh (HSDP: shards times copies) the copies never become one: gradients are averaged,
# so all copies take the same steps and stay as far apart as they began. full_tensor() shows a rank only its own copy. The newer
# replicate (of replicate_with_fsdp) sends nothing either, and its DTensor says Replicate() of numbers that differ. No error, no
# warning; a checkpoint keeps one copy, so a resumed run goes on with other weights than most ranks had (the last: not run here).
# What to do: one seed on all ranks while the model is made, the rank's own seed only after it; or broadcast each parameter before
# fully_shard. Then compare one weight's sum over the ranks of the copies before the first step.
# Seen 2026-11-29: see SEEN below: column 0 of a weight of 4 rows, made as the rank's number, on ranks 0 and 3.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def rank_main(rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=ranks)
    line, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))

    def fresh():
        layer = nn.Linear(2, 4, bias=False)
        nn.init.constant_(layer.weight, float(rank))
        return layer

    def report(name, weight):
        whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
        everyone = [None] * ranks
        dist.all_gather_object(everyone, [int(x) for x in whole[:, 0]])
        if rank == 0:
            print(f"{name}: {everyone[0]} {everyone[3]}", flush=True)

    report("DDP", nn.parallel.DistributedDataParallel(fresh()).module.weight)
    report("parallelize_module", parallelize_module(fresh(), line, ColwiseParallel()).weight)
    report("fully_shard", fully_shard(fresh(), mesh=line).weight)
    report("replicate", replicate(fresh(), mesh=line).weight)
    model = fully_shard(fresh(), mesh=square)
    report("HSDP", model.weight)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        sgd.step()
        sgd.zero_grad()
    report("HSDP after 3 steps", model.weight)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank_main, (4,), nprocs=4)
PYEND
SEEN="DDP: [0, 0, 0, 0] [0, 0, 0, 0]
parallelize_module: [0, 0, 0, 0] [0, 0, 0, 0]
fully_shard: [0, 1, 2, 3] [0, 1, 2, 3]
replicate: [0, 0, 0, 0] [3, 3, 3, 3]
HSDP: [0, 0, 1, 1] [2, 2, 3, 3]
HSDP after 3 steps: [-3, -3, -2, -2] [-1, -1, 0, 0]"
NOW=$(MEET=$D/meet timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
