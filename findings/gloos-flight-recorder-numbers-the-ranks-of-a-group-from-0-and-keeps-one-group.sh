#!/usr/bin/env bash
# torch 2.15.0, the flight recorder on gloo, 4 ranks on CPU: groups of ranks 1, 2, 3 and then of ranks 1, 3, one all_reduce and one message.
# One would guess: `pg_config` of a dump has each group by its name, with the numbers of its ranks in the job, as NCCL's dumps do; and a
# message is an entry with `is_p2p`.
# What happens: `pg_config` has one entry, without a name, for the group that the rank made last, and its ranks are numbered from 0 on:
# ranks 1 and 3 are "[0, 1]". The message is no entry; only a number is left out of `op_id`. So whoever looks up in `pg_config` which
# ranks a call waits for finds none, or others.
# What to do: take from that entry only how many ranks the last group has, and who is in a group from the ranks that call in it.
# Seen 2026-11-30: see SEEN, of rank 1.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
PY=${TORCH_PYTHON:-} # an interpreter with torch 2.15.0; without one it is installed here, which takes minutes
if [ -z "$PY" ]; then python3 -m venv "$D/v"; PY=$D/v/bin/python; "$PY" -m pip install -q torch==2.15.0 numpy==2.4.6; fi
"$PY" -c 'import sys, torch; sys.exit(torch.__version__.split("+")[0] != "2.15.0" and "this needs torch 2.15.0")'
cat > "$D/run.py" <<'PYEND'
import json, os, torch, torch.distributed as dist, torch.multiprocessing as mp

def rank_main(rank, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=rank, world_size=ranks)
    dist.new_group([1, 2, 3], group_desc="three")
    two = dist.new_group([1, 3], group_desc="two")
    if rank in (1, 3):
        dist.all_reduce(torch.ones(4), group=two)
        dist.send(torch.ones(4), 3) if rank == 1 else dist.recv(torch.ones(4), 1)
    dist.barrier()
    if rank == 1:
        dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
        print("pg_config:", dump["pg_config"])
        for entry in dump["entries"]:
            print(entry["process_group"], entry["profiling_name"], "collective", entry["collective_seq_id"], "op", entry["op_id"])
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank_main, (4,), nprocs=4)
PYEND
SEEN="pg_config: {'': {'desc': '', 'name': '', 'ranks': '[0, 1]'}}
['2', 'two'] gloo:all_reduce collective 1 op 1
['0', 'default_pg'] gloo:barrier collective 1 op 2"
NOW=$(MEET=$D/meet TORCH_FR_BUFFER_SIZE=100 timeout 170 "$PY" -W ignore "$D/run.py" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-30:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-30:\n%s\n' "$NOW"
