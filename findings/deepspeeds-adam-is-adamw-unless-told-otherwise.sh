#!/usr/bin/env bash
# DeepSpeed 0.19.8 with torch 2.15.0, one process, CPU: which optimizer "type": "Adam" of its configuration makes.
# One would guess: Adam, whose weight_decay is added to the gradient, as torch.optim.Adam has it; "AdamW" for the other rule.
# What happens: "Adam" makes AdamW: decay applied to the weights directly. Only "adam_w_mode": false in its params gives Adam. With
# "AdamW" that key is ignored, so the pair is not symmetric. Without weight_decay nobody sees it; with it a run that is ported from
# torch.optim.Adam decays by another rule from the first step on. ("torch_adam": true is set here, as DeepSpeed's own kernels must
# be compiled; they were not run.)
# What to do: write "AdamW" where it is meant, "Adam" with "adam_w_mode": false where Adam is; or hand over an optimizer of your own.
# Seen 2026-11-29: see SEEN below: the class, and a weight of 1 after one step with gradient 1, rate 0.1 and decay 0.5. Adam's step
# is 0.1 whatever its gradient's size; AdamW's takes another 0.1 x 0.5 off.
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
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29751")
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a compiled helper that one process does not need
deepspeed.init_distributed(dist_backend="gloo", verbose=False)

def stepped(engine):
    engine.backward(engine(torch.ones(1, 1)).sum())
    engine.step()
    return engine.module.weight.item()

for kind in ("Adam", "AdamW"):
    for more in ({}, {"adam_w_mode": False}):
        layer = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.ones_(layer.weight)
        params = dict(lr=0.1, weight_decay=0.5, torch_adam=True, **more)
        engine = deepspeed.initialize(model=layer, model_parameters=layer.parameters(),
                                      config=dict(train_batch_size=1, optimizer=dict(type=kind, params=params)))[0]
        name = type(engine.optimizer).__name__
        print(f"type {kind} {more or ''}: {name}, weight {stepped(engine):.3f}", flush=True)
PYEND
SEEN="type Adam : AdamW, weight 0.850
type Adam {'adam_w_mode': False}: Adam, weight 0.900
type AdamW : AdamW, weight 0.850
type AdamW {'adam_w_mode': False}: AdamW, weight 0.850"
NOW=$(cd "$D" && timeout 170 "$PY" -W ignore run.py 2>"$D/err" | grep '^type ') || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
