#!/usr/bin/env bash
# mpi4py 4.1.1 with MPICH 5.0.2 (PyPI's wheels `mpi4py`, `mpich`) and numpy 2.4.6, 2 ranks.
# One would guess: comm.Allreduce and comm.Bcast of numpy arrays of one shape and type meet element by element; comm.allreduce of a
# list adds, or takes the maximum of, each number.
# What happens: capital letters send the MEMORY. An array in Fortran's order (x.T of a matrix; np.asfortranarray; what np.load gives for
# one saved so) beside one in C's order has its elements mixed up, in silence: the shapes are equal, and so are the sums, so a
# check by the sum sees nothing. (An array whose memory has gaps raises an error.) Small letters apply Python's operators:
# lists are added end to end, so that [loss, tokens] on 2 ranks becomes 4 numbers, and op=MAX compares lists by their first number that
# differs: all ranks get ONE rank's list, not the largest of each.
# What to do: np.ascontiguousarray before any capital letter, on sender and receiver; np.array([...]) for small letters, and capital
# letters for the maximum.
# Seen 2026-11-29: see SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
python3 -m venv "$D/v"
"$D/v/bin/pip" -q install --disable-pip-version-check mpi4py==4.1.1 mpich==5.0.2 numpy==2.4.6
cat > "$D/run.py" <<'PYEND'
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
first = world.rank == 0

def tell(name, value):
    found = world.gather(value)
    if first:
        print(f"{name}: {found[0]} | {found[1]}", flush=True)

matrix = np.arange(6.0).reshape(2, 3)
got = matrix.copy() if first else np.zeros((3, 2)).T
world.Bcast(got)
tell("Bcast, rows to columns", got.tolist())
ones, total = (np.asfortranarray(matrix) if first else matrix), np.zeros((2, 3))
world.Allreduce(ones, total)
tell("Allreduce, columns + rows", total.tolist())
tell("their sum", total.sum().item())
try:
    world.Allreduce(np.arange(12.0)[::2], np.zeros(6))
    tell("every second element", "taken")
except (BufferError, ValueError) as error:
    tell("every second element", type(error).__name__)
mine = [1.0, 9.0] if first else [2.0, 0.0]
tell("allreduce of lists", world.allreduce(mine))
tell("allreduce of lists, MAX", world.allreduce(mine, op=MPI.MAX))
most = np.zeros(2)
world.Allreduce(np.array(mine), most, op=MPI.MAX)
tell("Allreduce of arrays, MAX", most.tolist())
PYEND
SEEN="Bcast, rows to columns: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] | [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
Allreduce, columns + rows: [[0.0, 4.0, 3.0], [7.0, 6.0, 10.0]] | [[0.0, 4.0, 3.0], [7.0, 6.0, 10.0]]
their sum: 30.0 | 30.0
every second element: BufferError | BufferError
allreduce of lists: [1.0, 9.0, 2.0, 0.0] | [1.0, 9.0, 2.0, 0.0]
allreduce of lists, MAX: [2.0, 0.0] | [2.0, 0.0]
Allreduce of arrays, MAX: [2.0, 9.0] | [2.0, 9.0]"
NOW=$(cd "$D" && timeout 60 v/bin/mpirun -n 2 v/bin/python -W ignore run.py 2>err) || { tail -5 "$D/err"; exit 1; }
[ "$NOW" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$NOW"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$NOW"
