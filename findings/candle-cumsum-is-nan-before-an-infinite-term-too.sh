#!/usr/bin/env bash
# candle-core 0.11.1 on CPUs (Linux): Tensor::cumsum, as for masked scores, log-probabilities and positions of packed documents.
# One would guess: each sum has the terms up to its own place; what comes later does not matter.
# What happens: it is a product with a triangle of ones and zeros, and infinity times 0 is NaN. One infinite or NaN term makes every
# sum BEFORE it NaN, in its row: [1, 2, inf, 4] gives [NaN, NaN, inf, inf]. In a causal model a later place changes an earlier one.
# The triangle has n * n elements: 4096 numbers take 64 MiB, 65536 would take 16 GiB. And as CPUs have no product of whole numbers, cumsum
# of u32 or i64, the lengths of documents, is an error.
# What to do: masks in finite numbers (-1e9) before cumsum, or a loop over the row; whole numbers by to_dtype(F64), exact below 2^53.
# (PyTorch 2.15.0, run beside it: [1, 3, inf, inf].)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "cumsum"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{Device::Cpu, Result, Tensor};

fn main() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for row in [[1f32, 2.0, 3.0, 4.0], [1.0, 2.0, inf, 4.0], [1.0, 2.0, -inf, 4.0], [1.0, 2.0, 3.0, nan]] {
        println!("{row:?}: {:?}", Tensor::new(&row, &Cpu)?.cumsum(0)?.to_vec1::<f32>()?);
    }
    let most = || -> usize { // of the memory that this process has held, in MiB
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: 0");
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
    };
    let before = most();
    Tensor::ones(4096, candle_core::DType::F32, &Cpu)?.cumsum(0)?;
    let grown = most() - before;
    println!("4096 numbers (16 KiB) take more than 60 MiB: {}", grown > 60);
    for whole in [Tensor::new(&[3u32, 4], &Cpu)?, Tensor::new(&[3i64, 4], &Cpu)?] {
        let error = whole.cumsum(0).map(|sums| sums.to_string()).unwrap_or_else(|error| error.to_string());
        println!("{:?}: {}", whole.dtype(), error.lines().next().unwrap());
    }
    Ok(())
}
END
SEEN="[1.0, 2.0, 3.0, 4.0]: [1.0, 3.0, 6.0, 10.0]
[1.0, 2.0, inf, 4.0]: [NaN, NaN, inf, inf]
[1.0, 2.0, -inf, 4.0]: [NaN, NaN, -inf, -inf]
[1.0, 2.0, 3.0, NaN]: [NaN, NaN, NaN, NaN]
4096 numbers (16 KiB) take more than 60 MiB: true
U32: unsupported dtype U32 for op matmul
I64: unsupported dtype I64 for op matmul"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
