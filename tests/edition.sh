#!/usr/bin/env bash
# An archive as those have it who download it: on a system without Rust, C compiler, Python or network. Each line of its README runs
# there, an exercise is compiled and checked, and the book is served.
#
#   tests/edition.sh shardlab-VERSION-SYSTEM.tar.gz      # from labs/cluster/build.sh archive
#
# No image and no daemon is needed: the system is a folder with a shell, the C library and zlib, in Linux's own namespaces, and has less
# than any container. What it cannot show is another, older C library. Where namespaces are not allowed, as on a Mac, the environment
# is empty and nothing else, and the last line says so.
set -euo pipefail

fail() { echo "FAILED: $*" >&2; exit 1; }
archive=$(realpath "${1:?the archive}")
name=$(basename "$archive" .tar.gz)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml" | head -n 1)
[[ $name == "shardlab-$version-"* ]] || fail "the archive is $name, and Cargo.toml says $version"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{home,tmp,bin,dev,proc}
tar -C "$work" -xzf "$archive"

# README's lines but the last, which serves until one stops it; then an exercise as it is, and solved.
{
    echo 'set -eux'
    sed -n '/^```sh$/,/^```$/p' "$work/$name/README.md" | grep -vE '^```| serve '
    echo 'test "$($SHARDLAB_BIN/lab01 --version)" = "lab01 '"$version"'"'
    echo 'if $SHARDLAB_BIN/workbook check lab01-ring; then exit 1; fi'
    echo 'cp share/labs/lab01/solutions/lab01_ring.rs "$HOME/shardlab-my/"'
    echo '$SHARDLAB_BIN/workbook check lab01-ring'
} >"$work/typed"

# Runs the command that follows a folder in it: what is typed, and then the server, of which two files are asked for.
try() {
    local folder=$1 page= module=0 server
    shift
    "$@" -c "cd '$folder' && . ../typed" || return 1
    "$@" -c "cd '$folder' && exec bin/workbook serve --port 8765" &
    server=$!
    page=$(curl -sS --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8765/lab00.html) &&
        module=$(curl -sS -o /dev/null -w '%{size_download}' http://127.0.0.1:8765/run/labs.wasm) || true
    kill $server
    if ! grep -q 'SHARDLAB_BIN/lab00' <<<"$page" || [ "$module" -lt 1000000 ]; then
        echo "lab00's page, or the labs for a browser ($module bytes), are not those of an archive" >&2
        return 1
    fi
}

if [ "$(uname)" = Linux ] && unshare -rmn true 2>/dev/null; then
    where="in a folder with a shell and the C library, without a network"
    for program in sh cp cat; do cp -L "$(type -P $program)" "$work/bin"; done
    # The libraries that its programs name, and that it has not: what each distribution has, or it would not run elsewhere.
    libraries() { ldd "$@" 2>/dev/null | grep -o '/[^ ]*' | grep -v ":$\|^$work" | sort -u || true; }
    needs=$(libraries "$work/$name"/{bin/*,toolchain/bin/rustc,toolchain/lib/rustlib/*/bin/rust-lld})
    strange=$(sed 's:.*/::' <<<"$needs" | grep -vE '^(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|z))\.so\.[0-9]+$' || true)
    [ -z "$strange" ] || fail "its programs need" $strange
    for library in $needs $(libraries "$work"/bin/*); do
        mkdir -p "$work/${library%/*}"
        cp -L "$library" "$work/$library"
    done
    begin='mount --rbind /dev "$1/dev"; mount --rbind /proc "$1/proc"; ip link set lo up'
    unshare -rmn bash -c "set -e; $begin; $(declare -f try); try '/$name' env -i HOME=/home PATH=/bin $(type -P chroot) '$work' /bin/sh" - "$work" ||
        fail "$where"
else
    where="in an empty environment, but on this system: it has no namespaces"
    try "$work/$name" env -i HOME="$work/home" PATH=/usr/bin:/bin sh || fail "$where"
fi
echo "ok: $name works $where"
