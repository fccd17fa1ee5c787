#!/usr/bin/env bash
# candle-core and candle-nn 0.11.1 on CPUs: loss::cross_entropy with targets that should be ignored (padding, the prompt of an answer).
# One would guess: -100 marks them, as in PyTorch; or at least that what is ignored does not count.
# What happens: no target is documented to be ignored, and the largest number of the type is: u32::MAX, which is -1 cast from i64, and
# 255 in u8. Such a row adds nothing to the sum and gets no gradient, yet the mean divides by ALL rows: with half of them ignored, loss
# and gradients are half. Ranks that average such losses count a token less, the more padding its batch has. -100 in i64, or cast to
# u32, is an ordinary error. Cast by way of f32, -100 and -1 are 0: a silent lesson to answer with token 0. Embedding::forward and
# index_select take the same number for a row of zeros, without an error.
# What to do: index_select the rows to keep, then cross_entropy; average over ranks by the number of tokens.
# (PyTorch 2.15.0, run beside it with -100: 0.24, the loss of the one row that counts.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "ignored"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
candle-nn = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{DType, Device::Cpu, Result, Tensor, Var};
use candle_nn::loss::cross_entropy;

fn main() -> Result<()> {
    let logits = Var::from_tensor(&Tensor::new(&[[2f32, 0.0, 0.0], [0.0, 1.0, 0.0]], &Cpu)?)?;
    let tried = |name: &str, target: &Tensor| -> Result<()> {
        match cross_entropy(&logits, target) {
            Ok(loss) => {
                let slopes = loss.backward()?.get(&logits).unwrap().abs()?.sum(1)?.to_vec1::<f32>()?;
                println!("{name}: {:.4}, gradients of the rows {slopes:.2?}", loss.to_scalar::<f32>()?);
            }
            Err(error) => println!("{name}: {}", error.to_string().lines().next().unwrap()),
        }
        Ok(())
    };
    let loss = cross_entropy(&logits.narrow(0, 0, 1)?, &Tensor::new(&[0u32], &Cpu)?)?;
    println!("the first row alone: {:.4}", loss.to_scalar::<f32>()?);
    tried("u32::MAX", &Tensor::new(&[0, u32::MAX], &Cpu)?)?;
    tried("255 in u8", &Tensor::new(&[0, u8::MAX], &Cpu)?)?;
    for ignored in [-1i64, -100] {
        let target = Tensor::new(&[0, ignored], &Cpu)?;
        tried(&format!("{ignored} in i64"), &target)?;
        tried(&format!("{ignored} cast to u32"), &target.to_dtype(DType::U32)?)?;
        tried(&format!("{ignored} cast to f32, then u32"), &target.to_dtype(DType::F32)?.to_dtype(DType::U32)?)?;
    }
    let rows = logits.index_select(&Tensor::new(&[u32::MAX, 1], &Cpu)?, 0)?;
    println!("index_select of u32::MAX and 1: {:?}", rows.to_vec2::<f32>()?);
    Ok(())
}
END
SEEN="the first row alone: 0.2395
u32::MAX: 0.1198, gradients of the rows [0.21, 0.00]
255 in u8: 0.1198, gradients of the rows [0.21, 0.00]
-1 in i64: gather invalid index 18446744073709551615 with dim size 3
-1 cast to u32: 0.1198, gradients of the rows [0.21, 0.00]
-1 cast to f32, then u32: 0.8955, gradients of the rows [0.21, 0.79]
-100 in i64: gather invalid index 18446744073709551516 with dim size 3
-100 cast to u32: gather invalid index 4294967196 with dim size 3
-100 cast to f32, then u32: 0.8955, gradients of the rows [0.21, 0.79]
index_select of u32::MAX and 1: [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
