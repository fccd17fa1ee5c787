#!/usr/bin/env bash
# torch 2.15.0, DTensor, gloo, 2 ranks on CPU: conv1d and conv2d of an input that is sharded along its length (a long sequence, an
# audio track, an image's columns), with the kernel replicated.
# One would guess: the ranks exchange the edges, or the input is gathered first, or an error says that this cannot be done.
# What happens: each rank convolves its own stretch, with zeros at its inner border, and the result says Replicate() and the whole
# length. So full_tensor() gives each rank its own half, as a tensor that is too short for its own shape; a mean is that of the own
# half, another number on each rank, and .item() logs it. No error until a tensor of the right length meets it. A batch that is sharded
# along its examples is right, and so is a length that was padded before: F.pad gathers it.
# What to do: redistribute to Replicate() (or to shards of the batch or of the channels) before a convolution; or exchange
# the edges yourself on local tensors.
# Seen 2026-11-29: see SEEN below: the shape that the result claims, that of full_tensor(), the mean on both ranks beside the right one.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import os, torch, torch.distributed as dist, torch.multiprocessing as mp, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

def rank_main(rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    x, kernel = torch.arange(16.0).expand(2, 1, 16).contiguous(), torch.ones(1, 1, 3)

    def one_row(a, k, padding=1):  # the same as conv2d, of images of one row
        return F.conv2d(a[:, :, None], k[:, :, None], padding=(0, padding)).squeeze(2)

    def padded(a, k):
        return F.conv1d(F.pad(a, (1, 1)), k)

    cases = [("conv1d, length", F.conv1d, 2, 1), ("conv2d, length", one_row, 2, 1), ("conv1d, batch", F.conv1d, 0, 1),
             ("pad, then conv1d", padded, 2, None)]
    for name, f, dim, pad in cases:
        more = {} if pad is None else {"padding": pad}
        right = f(x, kernel, **more)
        y = f(distribute_tensor(x, mesh, [Shard(dim)]), distribute_tensor(kernel, mesh, [Replicate()]), **more)
        means = [None] * ranks
        whole = y.full_tensor()
        dist.all_gather_object(means, round(whole.mean().item(), 4))
        alone = torch.equal(y.to_local(), f(x.chunk(ranks, dim)[rank], kernel, **more))
        if rank == 0:
            print(f"{name}: {y.placements[0]} {tuple(y.shape)}, full_tensor {tuple(whole.shape)}, means {means} for {right.mean():.4f}, "
                  f"each part convolved alone: {alone}", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank_main, (2,), nprocs=2)
PYEND
SEEN="conv1d, length: R (2, 1, 16), full_tensor (2, 1, 8), means [9.625, 31.625] for 21.5625, each part convolved alone: True
conv2d, length: R (2, 1, 16), full_tensor (2, 1, 8), means [9.625, 31.625] for 21.5625, each part convolved alone: True
conv1d, batch: S(0) (2, 1, 16), full_tensor (2, 1, 16), means [21.5625, 21.5625] for 21.5625, each part convolved alone: True
pad, then conv1d: R (2, 1, 16), full_tensor (2, 1, 16), means [21.5625, 21.5625] for 21.5625, each part convolved alone: False"
NOW=$(MEET=$D/meet timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
