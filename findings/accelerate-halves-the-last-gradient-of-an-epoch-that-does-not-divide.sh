#!/usr/bin/env bash
# accelerate 1.15.0 with torch 2.15.0, one process, CPU: gradient_accumulation_steps=4 over a loader of 10 batches.
# One would guess: two steps of 4 batches and either a third one that averages the 2 that are left, or these wait for the next epoch.
# What happens: the end of the loader forces a step, and backward() has divided every loss by 4 as always. So the third step has the sum
# of 2 quarters: HALF of the gradient that its two batches have (with 9 batches a quarter). Adam's moments take it for a small gradient;
# SGD makes half a step, and clipping sees half the norm. That is once per epoch; with 5 batches it is every second step. Nothing
# is said.
# What to do: cut the data to a number of batches that the accumulation divides (drop_last drops samples, not batches), or
# GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=False), which lets the rest wait for the next epoch.
# Seen 2026-11-29: see SEEN below: every batch alone has the gradient 1.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
export PYTHONPATH=$D/p OMP_NUM_THREADS=1
"$PY" -m pip install -q --no-deps --target "$D/p" accelerate==1.15.0 safetensors==0.8.0 huggingface_hub==2.4.0 pyyaml psutil packaging
cat > "$D/run.py" <<'PYEND'
import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch.utils.data import DataLoader

def gradients(batches, wait):
    plugin = GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=not wait)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    model = torch.nn.Linear(1, 1, bias=False)
    model, sgd, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0), DataLoader(torch.ones(batches, 1)))
    seen = []
    for epoch in (1, 2):
        for x in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).sum())
                if accelerator.sync_gradients:
                    seen.append(model.weight.grad.item())
                sgd.step()
                sgd.zero_grad()
    return seen

for batches in (8, 10, 9, 5):
    print(f"{batches} batches, two epochs: {gradients(batches, False)}, sync_with_dataloader=False: {gradients(batches, True)}")
PYEND
SEEN="8 batches, two epochs: [1.0, 1.0, 1.0, 1.0], sync_with_dataloader=False: [1.0, 1.0, 1.0, 1.0]
10 batches, two epochs: [1.0, 1.0, 0.5, 1.0, 1.0, 0.5], sync_with_dataloader=False: [1.0, 1.0, 1.0, 1.0, 1.0]
9 batches, two epochs: [1.0, 1.0, 0.25, 1.0, 1.0, 0.25], sync_with_dataloader=False: [1.0, 1.0, 1.0, 1.0]
5 batches, two epochs: [1.0, 0.25, 1.0, 0.25], sync_with_dataloader=False: [1.0, 1.0]"
NOW=$(timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
