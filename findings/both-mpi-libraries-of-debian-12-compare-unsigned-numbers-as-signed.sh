#!/usr/bin/env bash
# MPICH 4.0.2 and Open MPI 4.1.4 as Debian 12 packages them (4.0.2-3+b1, 4.1.4-3+b1), two ranks of one machine. Needs mpich,
# libmpich-dev, openmpi-bin and libopenmpi-dev, and ends with 77 without them, or with other versions.
# One would guess: MPI_MIN and MPI_MAX of unsigned types compare unsigned numbers.
# What happens: of 5 and the type's largest number this MPICH calls the largest the minimum, and 5 the maximum, for MPI_UINT8_T to
# MPI_UINT64_T and MPI_UNSIGNED_LONG. Open MPI does so for MPI_UNSIGNED_LONG alone: MPI_UINT64_T, the same 64 bits, is right. As signed
# numbers the largest is -1. What is below half of the range is right, so a test with small numbers sees nothing, and a maximum over
# bytes, masks, hashes or times in 64 bits goes wrong. PyPI's builds of MPICH 4.0.3, 4.1.3, 4.3.2 and 5.0.2 were right in all of these.
# What to do: shift by half of the range into a signed type, or an MPI_Op of one's own.
# Seen 2026-11-30: what is in expected below.
set -euo pipefail
expected='mpich: uint8 255..5 uint16 65535..5 uint32 4294967295..5 uint64 18446744073709551615..5 ulong 18446744073709551615..5 small 5..7
openmpi: uint8 5..255 uint16 5..65535 uint32 5..4294967295 uint64 5..18446744073709551615 ulong 18446744073709551615..5 small 5..7'
version() { "mpirun.$1" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1; }
if ! command -v mpicc.mpich mpicc.openmpi >/dev/null || [ "$(version mpich)/$(version openmpi)" != 4.0.2/4.1.4 ]; then
    echo "needs Debian 12's MPICH 4.0.2 and Open MPI 4.1.4: apt-get install libmpich-dev mpich libopenmpi-dev openmpi-bin" >&2
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >compare.c <<'C'
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
static int rank;
/* What the library calls the least and the most of 5 and of rank 0's number. */
#define BOTH(name, type, mpi, of_rank_0)                                                                  \
    do {                                                                                                  \
        type mine = rank ? 5 : (type)of_rank_0, least, most;                                              \
        MPI_Allreduce(&mine, &least, 1, mpi, MPI_MIN, MPI_COMM_WORLD);                                    \
        MPI_Allreduce(&mine, &most, 1, mpi, MPI_MAX, MPI_COMM_WORLD);                                     \
        if (!rank) printf(" %s %llu..%llu", name, (unsigned long long)least, (unsigned long long)most);  \
    } while (0)
int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    BOTH("uint8", uint8_t, MPI_UINT8_T, UINT8_MAX);
    BOTH("uint16", uint16_t, MPI_UINT16_T, UINT16_MAX);
    BOTH("uint32", uint32_t, MPI_UINT32_T, UINT32_MAX);
    BOTH("uint64", uint64_t, MPI_UINT64_T, UINT64_MAX);
    BOTH("ulong", unsigned long, MPI_UNSIGNED_LONG, UINT64_MAX);
    BOTH("small", unsigned long, MPI_UNSIGNED_LONG, 7);
    MPI_Finalize();
}
C
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
seen=$(
    for library in mpich openmpi; do
        "mpicc.$library" -o "$library" compare.c
        echo "$library:$(timeout 60 "mpirun.$library" -n 2 "./$library")"
    done
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "it was: $expected" >&2
    exit 1
fi
