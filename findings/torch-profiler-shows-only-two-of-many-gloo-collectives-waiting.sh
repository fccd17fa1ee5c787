#!/usr/bin/env bash
# torch 2.15.0, torch.profiler and gloo, 2 ranks on CPU: rank 0 launches five all_reduce(async_op=True), rank 1 comes 2 s later.
# One would guess: rank 0's trace has five spans `gloo:all_reduce` of 2 s each, from the launch to the end: all five wait for rank 1.
# What happens: two spans of 2 s. The other three begin 2 s after they were launched, and last no time: a span begins when one of
# gloo's two threads takes the collective up, and both threads wait in the first two. So whoever adds up gloo's spans to see how long
# a rank waits for the others, or reads where a DDP bucket starts, is wrong as soon as three are under way. The launch itself is
# `c10d::allreduce_` on the thread that called, and lasts no time either. Nothing links the two but their order.
# What to do: take a collective from the beginning of its `c10d::allreduce_` to the end of its `gloo:all_reduce`, both counted in order.
# Seen 2026-11-30: see SEEN, in whole seconds since the first launch.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import json, os, time, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile

def rank_main(rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=ranks)
    tensors = [torch.ones(1000) for _ in range(5)]
    dist.all_reduce(tensors[0])  # connects
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        dist.barrier()
        if rank == 1:
            time.sleep(2)
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
    if rank == 0:
        profiler.export_chrome_trace(os.environ["TRACE"])
        events = json.load(open(os.environ["TRACE"]))["traceEvents"]
        named = lambda name: sorted([e for e in events if e.get("name") == name], key=lambda e: e["ts"])
        launches, spans = named("c10d::allreduce_"), named("gloo:all_reduce")
        seconds = lambda micro: round(micro / 1e6)
        for i, (launch, span) in enumerate(zip(launches, spans, strict=True)):
            print(f"{i}: launched at {seconds(launch['ts'] - launches[0]['ts'])}, its span begins at "
                  f"{seconds(span['ts'] - launches[0]['ts'])} and lasts {seconds(span['dur'])}")
        print(len({span["tid"] for span in spans}), "threads, none of them the launches':", launches[0]["tid"] not in {s["tid"] for s in spans})
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank_main, (2,), nprocs=2)
PYEND
SEEN="0: launched at 0, its span begins at 0 and lasts 2
1: launched at 0, its span begins at 0 and lasts 2
2: launched at 0, its span begins at 2 and lasts 0
3: launched at 0, its span begins at 2 and lasts 0
4: launched at 0, its span begins at 2 and lasts 0
2 threads, none of them the launches': True"
NOW=$(MEET=$D/meet TRACE=$D/trace.json timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-30:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-30:\n%s\n' "$NOW"
