#!/usr/bin/env bash
# torch 2.15.0, torch.distributed.checkpoint.async_save with a stager that is kept, one process on CPU: DefaultStager keeps its copy
# in memory so that the next save need not allocate it.
# One would guess: async_save has made a copy when it returns, so a save that is still being written is not touched by the next one.
# What happens: the kept stager has ONE copy. The next async_save overwrites it while the first save is written, and step 1's folder
# ends up with step 2's weights, complete and loadable, without a word. (It shows only if a save takes longer than the interval to
# the next. Here the writer of the first waits until the second has been called, as a slow disk would make it.) Without async_stager=,
# each call has a copy of its own and both folders are right.
# What to do: wait for the previous future (or upload_completion) before the next async_save with the same stager, or one stager
# for each save in flight.
# Seen 2026-11-29: see SEEN below: the weight was 1.0 at the first save and 2.0 at the second.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import os, tempfile, threading, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=0, world_size=1)

class SlowDisk(dcp.FileSystemWriter):
    def __init__(self, path, go):
        super().__init__(path)
        self.go = go

    def write_data(self, plan, planner):
        self.go.wait(60)
        return super().write_data(plan, planner)

def two_saves(name, stagers):
    folder, weight, second_called, waits = tempfile.mkdtemp(dir=os.environ["ROOM"]), torch.zeros(1000), threading.Event(), []
    for step, stager in enumerate(stagers, 1):
        weight.fill_(float(step))
        more = {} if stager is None else {"async_stager": stager}
        saved = dcp.async_save({"weight": weight}, storage_writer=SlowDisk(f"{folder}/{step}", second_called), **more)
        staged = getattr(saved, "staging_completion", None)
        if staged is not None:
            staged.result()
        waits.append(getattr(saved, "upload_completion", saved))
    second_called.set()
    for wait in waits:
        wait.result()
    found = []
    for step in (1, 2):
        state = {"weight": torch.zeros(1000)}
        dcp.load(state, checkpoint_id=f"{folder}/{step}")
        found.append(state["weight"].unique().tolist())
    print(f"{name}: folder 1 has {found[0]}, folder 2 has {found[1]}", flush=True)

def kept():
    return DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=False))

one = kept()
two_saves("no stager named", [None, None])
two_saves("a stager each", [kept(), kept()])
two_saves("one stager", [one, one])
dist.destroy_process_group()
PYEND
SEEN="no stager named: folder 1 has [1.0], folder 2 has [2.0]
a stager each: folder 1 has [1.0], folder 2 has [2.0]
one stager: folder 1 has [2.0], folder 2 has [2.0]"
NOW=$(ROOM=$D MEET=$D/meet timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
