#!/usr/bin/env bash
# DeepSpeed 0.19.8 with torch 2.15.0, one process, CPU: how far the first step of AdamW moves a weight, in fp16, by ZeRO's stage.
# One would guess: a rate's length, as AdamW's first step does whatever its gradient's size: 0.1 here, in each stage.
# What happens: without ZeRO (stage 0, an optimizer of your own, which gets FP16_UnfusedOptimizer) it is 0.074. When the engine is made,
# the optimizer takes a step with gradients of 0, so that its state exists. That counts: the first gradient meets the bias corrections
# of step 2, and every later one those of the step after its own. Weight decay takes its part in that step, too (not in what is shown
# here, without decay). Stage 1 counts right. The loss falls in both, a little slower here; nothing says so.
# What to do: compare runs only within a stage; or use stage 1 on one rank or many; or set the step counters in optimizer.state to 0.
# Seen 2026-11-30: see SEEN below: the step counter after one step of the engine, and by how much the weight moved.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
export DS_BUILD_OPS=0 DS_ACCELERATOR=cpu TORCHDYNAMO_DISABLE=1 OMP_NUM_THREADS=1 PYTHONPATH=$D/p
"$PY" -m pip install -q --no-deps --target "$D/p" deepspeed==0.19.8 einops hjson msgpack ninja packaging psutil py-cpuinfo \
  pydantic==2.14.4 pydantic-core==2.50.5 annotated-types typing-extensions typing-inspection tqdm
cat > "$D/run.py" <<'PYEND'
import logging, os, sys, torch
logging.disable(logging.CRITICAL)
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29753")
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a compiled helper that one process does not need
deepspeed.get_accelerator().is_fp16_supported = lambda: True  # CPUs compute in fp16, only slowly
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
for stage in (0, 1):
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(layer.weight)
    adamw = torch.optim.AdamW(layer.parameters(), lr=0.1, weight_decay=0.0)
    engine = deepspeed.initialize(model=layer, optimizer=adamw, config=dict(
        train_batch_size=1, fp16=dict(enabled=True, initial_scale_power=4), zero_optimization=dict(stage=stage)))[0]
    engine.backward(engine(torch.ones(1, 1).half()).float().sum())
    engine.step()
    (state,) = adamw.state.values()
    print(f"stage {stage}: Adam counts {int(state['step'])}, the weight moved by {1 - engine.module.weight.item():.3f}", flush=True)
PYEND
SEEN="stage 0: Adam counts 2, the weight moved by 0.074
stage 1: Adam counts 1, the weight moved by 0.100"
NOW=$(cd "$D" && timeout 170 "$PY" -W ignore run.py 2>"$D/err" | grep '^stage ') || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-30:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-30:\n%s\n' "$NOW"
