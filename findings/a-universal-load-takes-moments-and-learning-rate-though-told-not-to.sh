#!/usr/bin/env bash
# DeepSpeed 0.19.8 with torch 2.15.0, ZeRO 1, gloo, 1 rank on a CPU: load_checkpoint(..., load_optimizer_states=False) of a folder that
# ds_to_universal wrote ("load_universal": true), as one does who goes on with a model in another task, at another learning rate.
# One would guess: the weights come, AdamW's moments begin at zero, its steps are counted from zero and its learning rate is the
# config's: of the folder that was converted it is so.
# What happens: the moments, the step count and the saved learning rate come as well, without a word: the new job's first step goes
# at the old one's rate. load_module_only=True, which asks for the weights alone, changes nothing either.
# What to do: set param_group["lr"] and set the moments to zero after loading, or load fp32.pt of each parameter oneself.
# Seen 2026-12-01: see SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
export DS_BUILD_OPS=0 DS_ACCELERATOR=cpu TORCHDYNAMO_DISABLE=1 OMP_NUM_THREADS=1 PYTHONPATH=$D/p
"$PY" -m pip install -q --no-deps --target "$D/p" deepspeed==0.19.8 einops hjson msgpack ninja packaging psutil py-cpuinfo \
  pydantic==2.14.4 pydantic-core==2.50.5 annotated-types typing-extensions typing-inspection tqdm
cat > "$D/run.py" <<'PYEND'
import argparse, contextlib, io, logging, sys, torch
logging.disable(logging.CRITICAL)
import deepspeed
from deepspeed.checkpoint import ds_to_universal
from deepspeed.utils import safe_get_full_optimizer_state
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a compiled helper: gloo takes its place
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
torch.set_num_threads(1)


def begin(lr, **config):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4, bias=False)
    return deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=lr), config=dict(
        train_micro_batch_size_per_gpu=1, zero_optimization=dict(stage=1), zero_allow_untested_optimizer=True,
        zero_force_ds_cpu_optimizer=False, **config))[0]


def step(engine):
    engine.backward(engine(torch.ones(1, 4)).square().mean())
    engine.step()


def weight(engine):
    return engine.module.weight.detach().clone()


old = begin(lr=0.1)
for _ in range(3):
    step(old)
old.save_checkpoint("saved", tag="three")
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    ds_to_universal.main(argparse.Namespace(input_folder="saved/three", output_folder="saved/universal", num_extract_workers=1,
                                            num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True))
open("saved/latest_universal", "w").write("universal")
for name, tag, config, options in (
        ("as saved,  load_optimizer_states=False", "three", {}, dict(load_optimizer_states=False)),
        ("universal, load_optimizer_states=False", "universal", dict(checkpoint=dict(load_universal=True)), dict(load_optimizer_states=False)),
        ("universal, load_module_only=True      ", "universal", dict(checkpoint=dict(load_universal=True)), dict(load_module_only=True))):
    new = begin(lr=0.001, **config)
    new.load_checkpoint("saved", tag=tag, **options)
    same, before = torch.equal(weight(new), weight(old)), weight(new)
    lr = new.optimizer.param_groups[0]["lr"]
    step(new)
    state = next(iter(new.optimizer.optimizer.state.values()))
    print(f"{name}: weights loaded {same}, learning rate {lr}, steps counted after one more {int(state['step'])}, "
          f"largest change of a weight {(weight(new) - before).abs().max().item():.3f}", flush=True)
PYEND
SEEN="as saved,  load_optimizer_states=False: weights loaded True, learning rate 0.001, steps counted after one more 1, largest change of a weight 0.001
universal, load_optimizer_states=False: weights loaded True, learning rate 0.1, steps counted after one more 4, largest change of a weight 0.063
universal, load_module_only=True      : weights loaded True, learning rate 0.1, steps counted after one more 4, largest change of a weight 0.063"
export WORLD_SIZE=1 RANK=0 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29753
cd "$D"
NOW=$(timeout 170 "$PY" -W ignore run.py 2>"$D/err" | grep 'weights loaded') || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-12-01:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-12-01:\n%s\n' "$NOW"
