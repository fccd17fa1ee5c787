#!/usr/bin/env bash
# candle-nn 0.11.1: the first weights of candle_nn::linear and linear_no_bias.
# One would guess: those of torch.nn.Linear, as the bias has them (uniform, up to 1 / sqrt(inputs)), so that a port trains alike.
# What happens: the weights are normal with a deviation of sqrt(2 / inputs). PyTorch's are uniform, with 1 / sqrt(3 inputs): 2.45 times
# smaller. (Its kaiming_uniform_ is called with a = sqrt(5), which leaves a gain of 1 / sqrt(3).) Attention's first scores are 6 times as
# large, and a stack of layers grows where PyTorch's shrinks: below, eight of them without a norm are 1300 times apart. Learning
# rates, warm-ups and clipping that were tuned there do not fit, and no error says so.
# What to do: get_with_hints with the Init that you mean, or Linear::new(weight, bias) with weights of your own.
# (PyTorch 2.15.0, run beside it: 0.58 for weights and bias.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "first"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
candle-nn = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{DType, Device::Cpu, Module, Result, Tensor};
use candle_nn::{linear_no_bias, linear, Init, Linear, VarBuilder, VarMap};

fn size(x: &Tensor) -> Result<f32> {
    Ok(x.sqr()?.mean_all()?.to_scalar::<f32>()?.sqrt())
}

fn main() -> Result<()> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, &Cpu);
    let bound = 1.0 / 1024f64.sqrt();
    let uniform = Init::Uniform { lo: -bound, up: bound };
    let layer = linear(1024, 1024, builder.pp("layer"))?;
    let torchs = builder.get_with_hints((1024, 1024), "torchs", uniform)?;
    let (weights, bias) = (32.0 * size(layer.weight())?, 32.0 * size(layer.bias().unwrap())?);
    println!("times sqrt(1024): weights {weights:.1}, bias {bias:.1}, PyTorch's {:.1}", 32.0 * size(&torchs)?);
    let (mut x, mut y) = (Tensor::randn(0f32, 1.0, (16, 1024), &Cpu)?, Tensor::randn(0f32, 1.0, (16, 1024), &Cpu)?);
    for i in 0..8 {
        x = linear_no_bias(1024, 1024, builder.pp(format!("x{i}")))?.forward(&x)?;
        y = Linear::new(builder.get_with_hints((1024, 1024), &format!("y{i}"), uniform)?, None).forward(&y)?;
    }
    println!("after eight: about 1 before, more than 10 {}, PyTorch's less than 0.03 {}", size(&x)? > 10.0, size(&y)? < 0.03);
    Ok(())
}
END
SEEN="times sqrt(1024): weights 1.4, bias 0.6, PyTorch's 0.6
after eight: about 1 before, more than 10 true, PyTorch's less than 0.03 true"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
