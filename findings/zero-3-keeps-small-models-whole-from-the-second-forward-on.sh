#!/usr/bin/env bash
# DeepSpeed 0.19.8 with torch 2.15.0, ZeRO 3, gloo, 2 ranks on CPU: how many weights a rank holds at which moment. In ZeRO 3
# sum(p.numel() for p in model.parameters()) counts just that: what is gathered now. (ds_numel has the parameter's own size.)
# One would guess: a layer is whole while it computes and is divided again right after, in each step alike, so between forward and
# backward a rank holds its share; a count or a memory test of the first step tells how it goes on.
# What happens: so it is in the first forward pass only, when DeepSpeed records the order of layers. From the second on, what will be
# used again within 1e9 parameters (stage3_max_reuse_distance) or lies within the prefetcher's 5e7 (stage3_prefetch_bucket_size)
# is kept: a model smaller than that is WHOLE on every rank at the end of each forward pass, and after a pass without gradients it
# stays so. (Of a larger model the layers used last should be kept: its source, read.) Either setting alone keeps it: only both
# at 0 let the layers go. Biases and norms (below stage3_param_persistence_threshold) are kept in any case.
# "stage3_max_live_parameters": 0 does not help.
# What to do: measure from the second step on; set both keys (to 0 to save memory, at the cost of gathering again); count by ds_numel.
# Seen 2026-11-29: see SEEN below: elements on rank 0 after forward, backward, step (three layers of 400 x 400).
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
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a compiled helper: gloo takes its place
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
torch.set_num_threads(1)
OFF = dict(stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0)
CASES = {"defaults": {}, "reuse distance 0": dict(stage3_max_reuse_distance=0), "prefetch 0": dict(stage3_prefetch_bucket_size=0),
         "live parameters 0": dict(stage3_max_live_parameters=0), "reuse distance and prefetch 0": OFF}
for name, keys in CASES.items():
    model = torch.nn.Sequential(*(torch.nn.Linear(400, 400) for _ in range(3)))
    sgd = torch.optim.SGD(model.parameters(), lr=0.001)
    engine = deepspeed.initialize(model=model, optimizer=sgd, config=dict(
        train_micro_batch_size_per_gpu=1, zero_optimization=dict(stage=3, **keys), zero_allow_untested_optimizer=True,
        zero_force_ds_cpu_optimizer=False))[0]

    def gathered():
        return sum(p.numel() for p in engine.module.parameters())

    moments = [f"made {gathered()}"]
    for step in (1, 2):
        loss = engine(torch.ones(1, 400)).mean()
        now = [gathered()]
        engine.backward(loss)
        now.append(gathered())
        engine.step()
        moments.append(f"step {step} {now + [gathered()]}")
    with torch.no_grad():
        engine.eval()
        engine(torch.ones(1, 400))
    moments.append(f"evaluated {gathered()}")
    own = sum(p.ds_numel for p in engine.module.parameters())
    if os.environ["RANK"] == "0":
        print(f"{name}: of {own}: " + ", ".join(moments), flush=True)
PYEND
SEEN="defaults: of 481200: made 0, step 1 [0, 400, 1200], step 2 [481200, 1200, 1200], evaluated 481200
reuse distance 0: of 481200: made 0, step 1 [0, 400, 1200], step 2 [481200, 1200, 1200], evaluated 481200
prefetch 0: of 481200: made 0, step 1 [0, 400, 1200], step 2 [481200, 1200, 1200], evaluated 481200
live parameters 0: of 481200: made 0, step 1 [0, 400, 1200], step 2 [481200, 1200, 1200], evaluated 481200
reuse distance and prefetch 0: of 481200: made 0, step 1 [0, 400, 1200], step 2 [1200, 1200, 1200], evaluated 1200"
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29752
cd "$D"
RANK=1 LOCAL_RANK=1 timeout 170 "$PY" -W ignore run.py > "$D/other" 2>&1 &
NOW=$(RANK=0 LOCAL_RANK=0 timeout 170 "$PY" -W ignore run.py 2>"$D/err" | grep ': of ') || { tail -5 "$D/err"; exit 1; }
wait
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
