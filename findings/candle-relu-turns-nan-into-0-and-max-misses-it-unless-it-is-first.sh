#!/usr/bin/env bash
# candle-core 0.11.1 on CPUs: what becomes of a NaN in relu, maximum, max and argmax.
# One would guess: it stays NaN to the loss, as in PyTorch, so that a check of the loss or of the norm stops the run.
# What happens: relu(NaN) is 0, in all types. A layer with a NaN weight gives zeros, the loss stays finite, and the gradients that pass
# through are 0, so the weight stays NaN and no step is skipped. max, min and their argmax keep a NaN that comes first, and pass over one
# that comes later: `grads.abs().max_all()` as a test for overflow sees it or not, by its place, so ranks with other shards decide
# differently. zeros.maximum(x) drops it, x.maximum(zeros) keeps it. gelu, silu, sigmoid, softmax, clamp and sum keep it.
# What to do: test with a sum (`x.sum_all()` of f32 keeps NaN and infinity), of weights too, not of the loss alone.
# (PyTorch 2.15.0, run beside it: NaN in all of these but clamp's gradient; the loss is NaN.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "nans"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{DType, Device::Cpu, Result, Tensor, Var};

fn numbers(x: &Tensor) -> Result<Vec<f32>> {
    x.flatten_all()?.to_dtype(DType::F32)?.to_vec1()
}

fn main() -> Result<()> {
    let nan = f32::NAN;
    let weights = Var::from_slice(&[nan, 2.0], (2, 1), &Cpu)?;
    let hidden = Tensor::new(&[[1f32, 1.0], [2.0, 2.0]], &Cpu)?.matmul(&weights)?;
    let loss = hidden.relu()?.sum_all()?;
    let slopes = numbers(loss.backward()?.get(&weights).unwrap())?;
    println!("hidden {:?}, loss after relu {:?}, gradients {slopes:?}", numbers(&hidden)?, numbers(&loss)?);
    for kind in [DType::F64, DType::F16, DType::BF16] {
        println!("relu in {kind:?}: {:?}", numbers(&Tensor::new(&[nan, 1.0], &Cpu)?.to_dtype(kind)?.relu()?)?);
    }
    for row in [[nan, 2.0, 1.0], [1.0, nan, 2.0], [2.0, 1.0, nan]] {
        let x = Tensor::new(&row, &Cpu)?;
        let (most, place, sum) = (numbers(&x.max_all()?)?, numbers(&x.argmax(0)?)?, numbers(&x.sum_all()?)?);
        println!("{row:?}: max {most:?} at {place:?}, sum {sum:?}");
    }
    let (x, zero) = (Tensor::new(&[nan], &Cpu)?, Tensor::zeros(1, DType::F32, &Cpu)?);
    println!("zero.maximum(x) {:?}, x.maximum(zero) {:?}", numbers(&zero.maximum(&x)?)?, numbers(&x.maximum(&zero)?)?);
    println!("gelu {:?}, silu {:?}, clamp {:?}", numbers(&x.gelu()?)?, numbers(&x.silu()?)?, numbers(&x.clamp(0f32, 1f32)?)?);
    Ok(())
}
END
SEEN="hidden [NaN, NaN], loss after relu [0.0], gradients [0.0, 0.0]
relu in F64: [0.0, 1.0]
relu in F16: [0.0, 1.0]
relu in BF16: [0.0, 1.0]
[NaN, 2.0, 1.0]: max [NaN] at [0.0], sum [NaN]
[1.0, NaN, 2.0]: max [2.0] at [2.0], sum [NaN]
[2.0, 1.0, NaN]: max [2.0] at [0.0], sum [NaN]
zero.maximum(x) [0.0], x.maximum(zero) [NaN]
gelu [NaN], silu [NaN], clamp [NaN]"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
