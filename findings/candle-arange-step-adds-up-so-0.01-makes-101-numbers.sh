#!/usr/bin/env bash
# candle-core 0.11.1: Tensor::arange_step of floats, as one takes it for grids, time steps of diffusion and schedules.
# One would guess: as in PyTorch, the length is computed first, and number i is start + i * step, so the numbers end before `end`.
# What happens: the step is added again and again, and each sum rounded, until `end` is reached. From 0 to 1 by 0.01 there are 101 numbers,
# the last of them 0.99999934, where 100 are right; from 0 to 100 by 0.1 there are 1001, in f64 too. Others come out right
# (1 by 0.05: 20). So a shape is one too long in one type and right in another, and the error grows with the length.
# What to do: arange of whole numbers, cast, times the step (`(Tensor::arange(0u32, n, &d)?.to_dtype(F32)? * step)?`).
# (PyTorch 2.15.0, run beside it: 100 numbers to 0.99, 1000 to 99.9.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "arange"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{DType, Device::Cpu, Result, Tensor};

fn main() -> Result<()> {
    for (end, step, right) in [(1f32, 0.01f32, 100u32), (1.0, 0.001, 1000), (100.0, 0.1, 1000), (3.0, 0.1, 30), (1.0, 0.05, 20)] {
        let added = Tensor::arange_step(0.0, end, step, &Cpu)?.to_vec1::<f32>()?;
        let exact = Tensor::arange_step(0.0, end as f64, (step as f64 * 1e6).round() / 1e6, &Cpu)?.elem_count();
        let times = (Tensor::arange(0, right, &Cpu)?.to_dtype(DType::F32)? * step as f64)?.to_vec1::<f32>()?;
        let last = |all: &[f32]| format!("{} numbers to {}", all.len(), all.last().unwrap());
        println!("0 to {end} by {step}: {}; in f64 {exact}; by multiplication {}", last(&added), last(&times));
    }
    Ok(())
}
END
SEEN="0 to 1 by 0.01: 101 numbers to 0.99999934; in f64 100; by multiplication 100 numbers to 0.98999995
0 to 1 by 0.001: 1001 numbers to 0.9999907; in f64 1000; by multiplication 1000 numbers to 0.9990001
0 to 100 by 0.1: 1001 numbers to 99.99905; in f64 1001; by multiplication 1000 numbers to 99.9
0 to 3 by 0.1: 31 numbers to 2.9999993; in f64 30; by multiplication 30 numbers to 2.9
0 to 1 by 0.05: 20 numbers to 0.95000017; in f64 20; by multiplication 20 numbers to 0.95"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
