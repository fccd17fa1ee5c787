#!/usr/bin/env bash
# torch 2.15.0, torch.distributed.pipelining, gloo, 2 ranks on CPU: how often a stage's forward runs in the first schedule.step().
# One would guess: once per micro-batch, with the micro-batch's numbers; shapes are found on the meta device, or from the data.
# What happens: a PipelineStage that was given no shapes runs forward once more before the first micro-batch, for real and in
# training mode (and backward: its source, read). Every stage but the first runs it on memory that nobody has written. Buffers
# are put back afterwards (BatchNorm's count is right), and the first step's dropout is that of a run without it. But what a module
# keeps in a Python attribute (calls, tokens per expert, a list of auxiliary losses) is not: it has one entry too many, and on a
# later stage that entry is made of whatever lay in memory, so that it differs from run to run and may be infinite.
# What to do: PipelineStage(..., input_args=, output_args=) with meta tensors of one micro-batch (requires_grad=True for what a
# stage before this one has computed); or count in buffers.
# Seen 2026-11-29: see SEEN below: 4 micro-batches.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.drop, self.inputs = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), []

    def forward(self, x):
        self.inputs.append(x.detach().clone())
        return self.drop(self.norm(self.layer(x)))

def rank_main(rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=ranks)
    losses, counts = {}, {}
    plain, trained = (torch.empty(2, 4, device="meta", requires_grad=slope) for slope in (False, True))
    for name, more in (("no shapes", {}), ("shapes given", dict(input_args=(trained if rank else plain,), output_args=(trained,)))):
        torch.manual_seed(1)
        part = Part()
        stage = PipelineStage(part, rank, ranks, torch.device("cpu"), **more)
        schedule = schedules.Schedule1F1B(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())
        x, found, calls = torch.randn(8, 4), [], []
        for _ in range(2):
            before = len(part.inputs)
            schedule.step(x) if rank == 0 else schedule.step(target=torch.zeros(8, 4), losses=found)
            calls.append(len(part.inputs) - before)
        counts[name] = f"forward ran {calls}, BatchNorm counts {part.norm.num_batches_tracked.item()}"
        losses[name] = [round(v.item(), 6) for v in found]
    everyone = [None] * ranks
    dist.all_gather_object(everyone, counts)
    if rank == ranks - 1:
        for name in counts:
            print(f"{name}: " + "; ".join(f"stage {r} {everyone[r][name]}" for r in range(ranks)), flush=True)
        print("same losses with dropout, one seed:", losses["no shapes"] == losses["shapes given"], flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank_main, (2,), nprocs=2)
PYEND
SEEN="no shapes: stage 0 forward ran [5, 4], BatchNorm counts 8; stage 1 forward ran [5, 4], BatchNorm counts 8
shapes given: stage 0 forward ran [4, 4], BatchNorm counts 8; stage 1 forward ran [4, 4], BatchNorm counts 8
same losses with dropout, one seed: True"
NOW=$(MEET=$D/meet timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
