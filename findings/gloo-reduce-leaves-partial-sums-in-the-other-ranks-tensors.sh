#!/usr/bin/env bash
# torch 2.15.0, gloo, 4 ranks on CPU: dist.reduce(x, dst=0), to log a sum on rank 0.
# One would guess: rank 0 has the sum, and the other ranks still have what they gave, as MPI_Reduce leaves its send buffer.
# What happens: the other ranks' tensors are used as scratch. Each is left with its own number plus those of some other ranks, which
# ones depends on the rank and on the place in the tensor: rank 3 of 4 has all four added up in one quarter of a long tensor. So a
# program that reduces a loss, a gradient or a count and goes on with x trains or reports wrong numbers on all ranks but one.
# Nothing is said. all_reduce gives all ranks the sum.
# What to do: reduce a clone, or all_reduce; treat x as lost on every rank but dst.
# Seen 2026-11-29: rank r gave 10 to the power r, 1000 times; the sum is 1111 (see SEEN: what each rank has afterwards).
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import os, torch, torch.distributed as dist, torch.multiprocessing as mp

def rank_main(rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=ranks)
    x = torch.full((1000,), 10.0**rank)
    dist.reduce(x, dst=0)
    found = [None] * ranks
    dist.all_gather_object(found, sorted({int(v) for v in x}))
    if rank == 0:
        for r, values in enumerate(found):
            print(f"rank {r} gave {10**r}, has {values}", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank_main, (4,), nprocs=4)
PYEND
SEEN="rank 0 gave 1, has [1111]
rank 1 gave 10, has [10, 110, 1110, 1111]
rank 2 gave 100, has [100, 1100, 1101, 1111]
rank 3 gave 1000, has [1000, 1001, 1011, 1111]"
NOW=$(MEET=$D/meet timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
