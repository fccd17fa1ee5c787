#!/bin/bash
# The Rust kernel of a hub or an image. It begins with a build that all share, so that a notebook's first cell takes seconds:
#
#   mkdir FOLDER; EVCXR_TMPDIR=FOLDER notebooks/run.py --first   # fills the folder with what first cells compile; once
#   notebooks/kernel.sh install FOLDER                           # Jupyter's Rust kernel is this script from now on
#
# With JUPYTER_PATH set, the kernel is installed there, for everyone. Two kernels cannot work in one folder: each gets a copy,
# which goes when the kernel ends.
set -euo pipefail

usage() {
    echo "error: $1" >&2
    echo "help: notebooks/kernel.sh install FOLDER, where FOLDER was filled by EVCXR_TMPDIR=FOLDER notebooks/run.py --first" >&2
    exit 2
}
if [ $# -ne 2 ]; then usage "two words are needed"; fi

if [ "$1" = install ]; then
    if [ ! -d "$2/target" ]; then usage "$2 holds no build"; fi
    build=$(realpath "$2")
    # The kernel finds the types of a cell's variables with rust-analyzer, which keeps the standard library's source in memory.
    # Without the processors' intrinsics, and what no notebook names, a kernel has 281 MB before its first cell, instead of 466.
    library=$(rustc --print sysroot)/lib/rustlib/src/rust/library
    if [ ! -d "$library" ]; then usage "the standard library's source is missing: rustup component add rust-src"; fi
    rm -rf "$build/library"
    cp -r "$library" "$build/library"
    (cd "$build/library" && rm -rf stdarch portable-simd compiler-builtins backtrace test proc_macro alloctests coretests profiler_builtins)
    kernel=$(evcxr_jupyter --install | sed -n 's/^Writing \(.*kernel.json\)$/\1/p')
    cat >"$kernel" <<END
{
  "argv": ["$(realpath "$0")", "$build", "{connection_file}"],
  "display_name": "Rust",
  "language": "rust",
  "interrupt_mode": "message"
}
END
    echo "installed: $kernel"
    exit
fi

shared=$1 connection=$2
EVCXR_TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/shardlab-kernel-XXXXXX")
export EVCXR_TMPDIR
trap 'rm -rf "$EVCXR_TMPDIR"' EXIT
# With its times: Cargo compares them. Where the file system can, nothing is copied until it changes.
find "$shared" -mindepth 1 -maxdepth 1 ! -name library -exec cp -a --reflink=auto {} "$EVCXR_TMPDIR" \;
export RUST_SRC_PATH=$shared/library
# evcxr 0.22 looks for the standard library one folder too high where both lie in one home.
libraries=$(rustc --print target-libdir)
export LD_LIBRARY_PATH=$libraries:${LD_LIBRARY_PATH:-}
# Notebooks name the library as `..`, seen from here; so their copies may lie anywhere.
cd "$(dirname "$(realpath "$0")")"
evcxr_jupyter --control_file "$connection"
