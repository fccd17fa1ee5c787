#!/bin/bash
# One build for everyone, on a login node, with or without a network there.
#
#   SCRATCH=/some/large/disk labs/cluster/build.sh fetch   # where there is a network: packages into $SCRATCH/shardlab/cargo
#   SCRATCH=/some/large/disk labs/cluster/build.sh         # without network from here on
#   SCRATCH=/some/large/disk labs/cluster/build.sh mpi     # ranks as MPI processes, for more than one node
#
# Without any network on the cluster, fetch on a laptop and copy the folder $SCRATCH/shardlab/cargo over.
# Code for the processor is chosen when a lab runs, so that login and compute nodes may differ.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ -z "${SCRATCH:-}" ]; then
    echo "error: SCRATCH is not set" >&2
    echo "help: SCRATCH=/some/large/disk $0 $*" >&2
    exit 2
fi
root=$SCRATCH/shardlab
# Home folders are small, slow for thousands of files, and counted.
export CARGO_HOME=$root/cargo
target=$root/target bin=$root/bin features=()

case "${1:-}" in
fetch)
    mkdir -p "$CARGO_HOME"
    exec cargo fetch --locked
    ;;
mpi)
    # A target folder of its own: the MPI bindings are not built again when the MPI changes.
    target=$root/target-mpi bin=$root/bin-mpi features=(--features mpi)
    # Cray's compiler wrapper knows where its MPI is.
    if [ -n "${CRAYPE_VERSION:-}" ]; then export MPICC=${MPICC:-cc}; fi
    ;;
"") ;;
*)
    echo "error: unknown word $1" >&2
    echo "help: fetch, mpi, or nothing" >&2
    exit 2
    ;;
esac

CARGO_TARGET_DIR=$target cargo build --release --locked --offline --bins ${features[@]+"${features[@]}"}

# Others need the programs alone; a later build leaves running ones as they are.
mkdir -p "$bin"
install -m 755 "$target"/release/launch "$target"/release/lab[0-9][0-9] "$bin"
chmod a+rx "$root" "$bin"
# The workbook compiles exercises against the library that lies beside it, so it stays where it is.
if [ ${#features[@]} -eq 0 ]; then
    chmod -R a+rX "$target"
    ln -sf "$target/release/workbook" "$bin/workbook"
fi
echo "built; everyone sets:  export SHARDLAB_BIN=$bin"
