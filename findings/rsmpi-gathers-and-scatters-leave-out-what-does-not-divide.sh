#!/usr/bin/env bash
# mpi 0.8.2 (rsmpi) with the system's MPI library: needs mpicc, mpirun and libclang, and ends with 77 without them.
# One would guess: a buffer of 7 numbers on 3 ranks is an error: reduce_scatter_block_into, of the same family, asserts that lengths fit.
# What happens: all_gather_into, gather_into_root, scatter_into_root and all_to_all_into divide the length by the number of ranks and drop
# the rest. All calls below are valid MPI, of 2 numbers per rank: the seventh is not sent, and in the receiver it stays as it was,
# without a word. A vector of gradients or parameters whose length is no multiple of the ranks keeps stale numbers at its end, up to
# one less than there are ranks, and with another number of ranks all is well. all_reduce_into counts the SENDER's numbers: what a
# receive buffer has beyond them stays, too.
# What to do: assert_eq!(len % ranks, 0), padding, or the calls with a Partition (all_gather_varcount_into).
# Seen with Open MPI 4.1.4.
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] || [ -n "$(ldconfig -p 2> /dev/null | grep libclang)" ] || ls /usr/lib/llvm-*/lib/libclang* > /dev/null 2>&1
}
if ! command -v mpicc > /dev/null || ! command -v mpirun > /dev/null || ! libclang; then
    echo "needs an MPI library with mpicc and mpirun, and libclang: libopenmpi-dev, openmpi-bin and libclang-dev on Debian" >&2
    exit 77
fi
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "gathers"
version = "0.0.0"
edition = "2021"
[dependencies]
mpi = { version = "=0.8.2", default-features = false }
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use mpi::collective::SystemOperation;
use mpi::traits::*;

fn main() {
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let (rank, root) = (world.rank(), world.process_at_rank(0));
    let two = [rank as f32 * 10.0 + 1.0, rank as f32 * 10.0 + 2.0];
    let seven: Vec<f32> = (1..8).map(|i| rank as f32 * 10.0 + i as f32).collect();
    let stale = [-1f32; 7];
    let (mut gathered, mut at_root, mut exchanged, mut sum) = (stale, stale, stale, stale);
    let (mut part, mut parts) = ([-1f32; 2], [-1f32; 6]);
    world.all_gather_into(&two, &mut gathered);
    world.all_to_all_into(&seven, &mut exchanged);
    world.all_reduce_into(&two, &mut sum, SystemOperation::sum());
    if rank == 0 {
        root.gather_into_root(&two, &mut at_root);
        root.scatter_into_root(&seven, &mut part);
    } else {
        root.gather_into(&two);
        root.scatter_into(&mut part);
    }
    world.all_gather_into(&part, &mut parts);
    if rank == 0 {
        println!("all_gather_into, 2 to 7: {gathered:?}");
        println!("gather_into_root, 2 to 7: {at_root:?}");
        println!("scatter_into_root of {seven:?}: {parts:?}");
        println!("all_to_all_into of the same: {exchanged:?}");
        println!("all_reduce_into, 2 to 7: {sum:?}");
    }
}
END
SEEN="all_gather_into, 2 to 7: [1.0, 2.0, 11.0, 12.0, 21.0, 22.0, -1.0]
gather_into_root, 2 to 7: [1.0, 2.0, 11.0, 12.0, 21.0, 22.0, -1.0]
scatter_into_root of [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
all_to_all_into of the same: [1.0, 2.0, 11.0, 12.0, 21.0, 22.0, -1.0]
all_reduce_into, 2 to 7: [33.0, 36.0, -1.0, -1.0, -1.0, -1.0, -1.0]"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
cd "$D"
cargo build -q 2>"$D/err" || { tail -5 "$D/err"; exit 1; }
GOT=$(timeout 60 mpirun -n 3 "${CARGO_TARGET_DIR:-target}/debug/gathers" 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
