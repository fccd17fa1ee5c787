#!/bin/bash
# One build for everyone, on a login node, with or without a network there.
#
#   SCRATCH=/some/large/disk labs/cluster/build.sh fetch     # where there is a network: packages into $SCRATCH/shardlab/cargo, and
#                                                            # what builds the book
#   SCRATCH=/some/large/disk labs/cluster/build.sh           # without network from here on
#   SCRATCH=/some/large/disk labs/cluster/build.sh mpi       # ranks as MPI processes, for more than one node
#   SCRATCH=/some/large/disk labs/cluster/build.sh archive   # what others need, as one file for machines like this one
#
# Without any network on the cluster, fetch on a laptop and copy the folder $SCRATCH/shardlab/cargo over.
# Code for the processor is chosen when a lab runs, so that login and compute nodes may differ.
#
# Everyone else only reads $SCRATCH/shardlab, and needs no Rust, no C compiler, no checkout and no network:
#
#   bin/, bin-mpi/   all programs; the workbook in both compiles exercises with ranks that are threads
#   share/labs/      what the workbook reads, and the job scripts
#   share/book/      the book, with the labs that run on its pages: $SHARDLAB_BIN/workbook serve
#   lib/             the library in its compiled form, for exercises
#   toolchain/       the rustc that has compiled it, for exercises, and in link/ what links where there is no C compiler
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
rustc=${RUSTC:-rustc}
# Whatever the user's own umask is, others must be able to read this.
umask 022

# Cargo's messages name the files of all that it builds or has built: `artifacts FOLDER FLAG...` prints them.
artifacts() {
    local target=$1
    shift
    CARGO_TARGET_DIR=$target cargo build --release --locked --offline --message-format=json-render-diagnostics "$@" |
        grep -o '"[^"]*"' | tr -d '"' | grep '^/' | sort -u || [ "${PIPESTATUS[0]}" -eq 0 ]
}

# A text with its commands as people type them here.
typed_here() { sed -E 's:cargo run --bin ([a-z0-9_]+)( --( |`|<|$))?:$SHARDLAB_BIN/\1\3:g' "$1"; }

# Installs programs. Those that run go on as they are: a new file takes the old one's name.
programs() {
    local bin=$1 path
    mkdir -p "$bin"
    while read -r path; do
        install -m 755 "$path" "$bin/.new"
        mv -f "$bin/.new" "$bin/${path##*/}"
    done
}

# What the workbook reads. Its texts name commands as they work here.
texts() {
    local new=$root/share.new file
    rm -rf "$new"
    for file in labs/labs.toml labs/cluster/*.{pbs,sbatch} labs/{lab*,ladder}/{exercises,checks,solutions}/*.rs \
        labs/ladder/{one_rank,rank,group,log,job,adam}.rs labs/capstone/adapters/*.rs; do
        mkdir -p "$new/${file%/*}"
        typed_here "$file" >"$new/$file"
    done
    # What checks say of mistakes, and notes for pages: the instructor's document has it. And traces that a check reads.
    for file in labs/*/checks/*.mistakes.toml labs/instructors/*.md labs/lab*/instructors.md labs/lab03/traces/*.json; do
        mkdir -p "$new/${file%/*}"
        cp "$file" "$new/$file"
    done
    if [ -d "$root/share/book" ]; then mv "$root/share/book" "$new/book"; fi
    rm -rf "$root/share"
    mv "$new" "$root/share"
}

# The book, where `fetch` could bring what builds it. Its pages name commands as they work here.
book() {
    local new=$root/book.new page
    PATH=$CARGO_HOME/bin:$PATH
    if ! command -v mdbook >/dev/null || [ ! -d "$($rustc --print sysroot)/lib/rustlib/$browser" ]; then
        echo "note: no book: fetch, where there is a network, brings mdBook and Rust's library for browsers;" >&2
        echo "note: or copy $root/share/book from a machine that has it: all machines have the same" >&2
        return
    fi
    export MDBOOK_PREPROCESSOR__SHARDLAB__COMMAND="'$root/target/release/book' preprocess"
    CARGO_TARGET_DIR=$root/target CARGO_NET_OFFLINE=true "$root/target/release/book" build >&2
    rm -rf "$new"
    cp -R target/book "$new"
    find "$new" -name '*.html' | while read -r page; do
        typed_here "$page" | sed "s:<main>:<main>$here:" >"$new/page"
        mv "$new/page" "$page"
    done
    rm -rf "$root/share/book"
    mv "$new" "$root/share/book"
    echo "the book:  \$SHARDLAB_BIN/workbook serve, or open $root/share/book/index.html"
}
browser=wasm32-wasip1-threads
here='<p class="room">Nothing is built here. Where a page says <code>$SHARDLAB_BIN</code>, first type <code>export SHARDLAB_BIN=\&hellip;/bin</code>, with the folder that you were told.</p>'

# What others need, in one file. It can be unpacked anywhere.
archive() {
    local name=shardlab-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-$($rustc -vV | sed -n 's/^host: //p')
    local new=$root/$name
    rm -rf "$new"
    mkdir "$new"
    cp -R "$root"/{bin,share,lib} "$new"
    if [ -d "$root/toolchain" ]; then cp -R "$root/toolchain" "$new"; fi
    cp labs/cluster/ARCHIVE.md "$new/README.md"
    cp LICENSE* "$new"
    tar -C "$root" -czf "$SCRATCH/$name.tar.gz" "$name"
    rm -rf "$new"
    echo "$SCRATCH/$name.tar.gz"
}

# The library and all that it uses. Macros are programs, which the compiler needs again.
library() {
    local new=$root/lib.new
    rm -rf "$new"
    mkdir -p "$new"
    { grep -E '\.(rlib|so|dylib)$' || true; } | while read -r path; do cp "$path" "$new"; done
    rm -rf "$root/lib"
    mv "$new" "$root/lib"
}

# The compiler, without what only builds of larger programs need.
toolchain() {
    local new=$root/toolchain.new sysroot host
    sysroot=$($rustc --print sysroot)
    host=$($rustc -vV | sed -n 's/^host: //p')
    # It takes minutes on a slow disk, and seldom changes.
    if [ "$("$root/toolchain/bin/rustc" -vV 2>/dev/null || true)" = "$($rustc -vV)" ]; then return; fi
    # Its libraries would be those of the whole system, which everyone has.
    if [ "$sysroot" = /usr ]; then return; fi
    rm -rf "$new"
    mkdir -p "$new/bin" "$new/lib/rustlib"
    cp "$sysroot/bin/rustc" "$new/bin"
    find "$sysroot/lib" -maxdepth 1 ! -type d -exec cp -P {} "$new/lib" \;
    cp -R "$sysroot/lib/rustlib/$host" "$new/lib/rustlib"
    rm -rf "$root/toolchain"
    mv "$new" "$root/toolchain"
    linker "$host" || rm -rf "$root/toolchain/link"
    if [ ! -d "$root/toolchain/link" ]; then
        echo "note: no linker could be brought; where there is no C compiler, exercises need its module" >&2
    fi
}

# What a C compiler adds to a program when it links it, for rustc's own linker: the start files and the system's libraries. At run
# time a program uses the libraries of the machine it runs on, as the labs do.
linker() {
    local link=$root/toolchain/link file name loader linker=$root/toolchain/lib/rustlib/$1/bin/rust-lld
    case $1 in *-linux-gnu) ;; *) return 1 ;; esac
    [ -x "$linker" ] || return 1
    loader=$(ldd "$root/bin/workbook" | grep -o '/[^ ]*/ld-[^ ]*' | head -n 1) || return 1
    mkdir "$link"
    for name in Scrt1.o crti.o crtbeginS.o crtendS.o crtn.o libgcc.a libc_nonshared.a \
        libgcc_s.so.1 libutil.so.1 librt.so.1 libpthread.so.0 libm.so.6 libdl.so.2 libc.so.6; do
        file=$(cc -print-file-name=$name)
        cp -L "$file" "$link/$name" || return 1
        case $name in *.so.*) echo "INPUT($name)" >"$link/${name%.so.*}.so" ;; esac
    done
    cp -L "$loader" "$link/loader.so" || return 1
    echo "INPUT(libc.so.6 libc_nonshared.a AS_NEEDED(loader.so))" >"$link/libc.so"
    echo "INPUT(libgcc_s.so.1 libgcc.a)" >"$link/libgcc_s.so"
    {
        echo "-Clinker=$linker"
        echo "-Clinker-flavor=ld.lld"
        printf -- '-Clink-arg=%s\n' "--dynamic-linker=$loader" "-L$link" \
            "$link"/{Scrt1,crti,crtbeginS,crtendS,crtn}.o
    } >"$link/arguments"
    # Only what works is kept.
    echo 'fn main() { println!("{}", std::env::args().count() as f64 / 3.0) }' >"$link/try.rs"
    "$root/toolchain/bin/rustc" "@$link/arguments" -o "$link/try" "$link/try.rs" && "$link/try" >/dev/null || return 1
    rm "$link"/try*
    # An archive is unpacked elsewhere: the workbook puts its folder in.
    sed "s:$root/toolchain:{toolchain}:" "$link/arguments" >"$link/new"
    mv "$link/new" "$link/arguments"
}

case "${1:-}" in
fetch)
    mkdir -p "$CARGO_HOME"
    cargo fetch --locked
    # For the book. Labs and exercises work without it.
    if command -v rustup >/dev/null; then rustup target add $browser || true; fi
    if ! PATH=$CARGO_HOME/bin:$PATH command -v mdbook >/dev/null; then
        # At a low level of optimization it is built sooner, and works no slower.
        CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off cargo install --locked --quiet --root "$CARGO_HOME" \
            mdbook --version "$(sed -n 's/^ARG MDBOOK=//p' labs/cluster/Containerfile)" --no-default-features --features search || true
    fi
    exit
    ;;
archive)
    archive
    exit
    ;;
mpi)
    # A target folder of its own: the MPI bindings are not built again when the MPI changes.
    # Cray's compiler wrapper knows where its MPI is.
    if [ -n "${CRAYPE_VERSION:-}" ]; then export MPICC=${MPICC:-cc}; fi
    built=$(artifacts "$root/target-mpi" --bins --features mpi)
    bin=$root/bin-mpi
    grep "^$root/target-mpi/release/[a-z0-9_]*$" <<<"$built" | grep -v '/\(workbook\|book\)$' | programs "$bin"
    # Exercises run on threads.
    built=$(artifacts "$root/target" --bin workbook)
    grep "^$root/target/release/workbook$" <<<"$built" | programs "$root/bin"
    echo "$root/bin/workbook" | programs "$bin"
    ;;
"")
    built=$(artifacts "$root/target" --bins)
    bin=$root/bin
    grep "^$root/target/release/[a-z0-9_]*$" <<<"$built" | grep -v '/book$' | programs "$bin"
    # If there are programs with MPI, their workbook uses the same library.
    if [ -d "$root/bin-mpi" ]; then echo "$bin/workbook" | programs "$root/bin-mpi"; fi
    ;;
*)
    echo "error: unknown word $1" >&2
    echo "help: fetch, mpi, archive, or nothing" >&2
    exit 2
    ;;
esac
library <<<"$built"
texts
toolchain
chmod a+rx "$root"
echo "built; everyone sets:  export SHARDLAB_BIN=$bin"
echo "and looks whether all is there:  \$SHARDLAB_BIN/workbook doctor"
# Last: a room works without it.
[ $# -gt 0 ] || book
