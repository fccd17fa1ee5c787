#!/usr/bin/env bash
# gemm-f16 0.19.0, one of the packages behind candle-core 0.11.1's matrix products, for aarch64-unknown-linux-gnu (rustc 1.95).
# One would guess: what compiles with `cargo build --release` compiles with `cargo build`, only slower to run.
# What happens: in the dev profile it ends with eleven errors, "instruction requires: fullfp16": the inline assembly of half-precision
# products stands in generic functions that only become part of one with the target feature where they are inlined, and level 0 inlines
# nothing. From level 1 on it compiles. On a Mac level 0 is fine: there the feature belongs to the target. `cargo check` says nothing
# on either, so a check for an ARM target proves nothing here. Whoever sets a low level for dependencies meets it without a dev profile.
# What to do: in Cargo.toml `[profile.dev.package.gemm-f16] opt-level = 1`. (`-C target-feature=+fp16` compiles, too, but then all code
# may use it, and a processor without, such as a Raspberry Pi 4's, need not run that.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "products"
version = "0.0.0"
edition = "2021"
[dependencies]
gemm-f16 = "=0.19.0"
[profile.dev]
debug = false
END
echo > "$D/src/lib.rs"
cd "$D"
rustup target add aarch64-unknown-linux-gnu aarch64-apple-darwin 2>/dev/null
try() {
    local what=$1 errors
    shift
    if "$@" >"$D/log" 2>&1; then echo "$what: compiles"; return; fi
    errors=$(grep -c 'instruction requires: fullfp16' "$D/log" || true)
    echo "$what: $([ "$errors" -gt 0 ] && echo 'instruction requires: fullfp16' || tail -3 "$D/log")"
}
linux=aarch64-unknown-linux-gnu mac=aarch64-apple-darwin
GOT=$(
    try 'Linux, check' cargo check --target $linux
    try 'Linux, level 0' cargo build --target $linux
    try 'Linux, level 0, fp16 for all' env RUSTFLAGS='-C target-feature=+fp16' cargo build --target $linux
    try 'Linux, that package at level 1' cargo build --target $linux --config 'profile.dev.package.gemm-f16.opt-level=1'
    try 'Linux, release' cargo build --target $linux --release
    try 'Mac, level 0' cargo build --target $mac
)
SEEN="Linux, check: compiles
Linux, level 0: instruction requires: fullfp16
Linux, level 0, fp16 for all: compiles
Linux, that package at level 1: compiles
Linux, release: compiles
Mac, level 0: compiles"
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
