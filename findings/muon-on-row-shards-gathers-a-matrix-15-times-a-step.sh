#!/usr/bin/env bash
# torch 2.15.0, torch.optim.Muon on row shards (what fully_shard makes), gloo, 4 ranks on CPU: what one step of one matrix sends.
# One would guess: a matrix is gathered once a step, and Newton-Schulz then runs on the whole, whatever the matrix's shape.
# What happens: the optimizer knows nothing of shards, and DTensor puts a collective into each product of Newton-Schulz. A matrix
# that is square or wider than high is gathered ten times a step and its square five times: three gathers in each of five iterations.
# A matrix that is higher than wide is never gathered: its small square is reduced, twice in each iteration. So two layers with
# the same number of weights differ by 11.25 to 2.5 in what a step brings to each rank; AdamW brings nothing. The result is right.
# What to do: redistribute(placements=[Replicate()]) the update once before Newton-Schulz and keep the own rows, or give each
# matrix to one rank; count with CommDebugMode before you trust a step's time.
# Seen 2026-11-29: see SEEN below: collectives of one step, elements of their results by the parameter's elements.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import collections, os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

class Watch(TorchDispatchMode):
    """Counts collectives and the elements of their results."""
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(t, torch.distributed.tensor.DTensor) for t in types):
            return NotImplemented  # let DTensor insert its collectives, then see them
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name in ("all_gather_into_tensor", "all_reduce", "reduce_scatter_tensor", "all_to_all_single"):
            seen[name] += 1
            sizes[name] += out.numel()
        return out

def rank_main(rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=ranks)
    global seen, sizes
    mesh = init_device_mesh("cpu", (ranks,))
    for rows, columns in ((16, 64), (32, 32), (64, 16)):
        torch.manual_seed(0)
        start, slope = torch.randn(rows, columns), torch.randn(rows, columns)
        one = nn.Parameter(start.clone())
        one.grad = slope.clone()
        torch.optim.Muon([one], lr=0.1).step()
        many = nn.Parameter(distribute_tensor(start, mesh, [Shard(0)]))
        many.grad = distribute_tensor(slope, mesh, [Shard(0)])
        muon = torch.optim.Muon([many], lr=0.1)
        seen, sizes = collections.Counter(), collections.Counter()
        with Watch():
            muon.step()
        off = (many.full_tensor() - one).abs().mean() / (one - start).abs().mean()
        if rank == 0:
            text = ", ".join(f"{seen[k]} {k} ({sizes[k] / start.numel():.2f} x)" for k in sorted(seen))
            print(f"{rows} x {columns}: {text}, right within 5%: {(off < 0.05).item()}", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank_main, (4,), nprocs=4)
PYEND
SEEN="16 x 64: 15 all_gather_into_tensor (11.25 x), 1 all_reduce (0.00 x), right within 5%: True
32 x 32: 15 all_gather_into_tensor (15.00 x), 1 all_reduce (0.00 x), right within 5%: True
64 x 16: 11 all_reduce (2.50 x), right within 5%: True"
NOW=$(MEET=$D/meet timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
