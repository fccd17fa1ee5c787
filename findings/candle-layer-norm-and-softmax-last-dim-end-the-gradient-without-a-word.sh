#!/usr/bin/env bash
# candle-nn 0.11.1: LayerNorm, RmsNorm, ops::softmax_last_dim and rotary_emb::rope in a model that is trained.
# One would guess: a layer of candle-nn can be trained, as its Linear; or backward() says that it has no gradient.
# What happens: on contiguous input these are fused operations without a backward pass (LayerNorm if it has a bias). They cut the graph, and
# their output is a constant: no parameter below them, nor the norm's own weight, gets a gradient, and no error comes. The loss goes down
# by what lies above the last one, often the head alone, and optimizers skip what has no gradient. For a norm it depends on its input's
# layout: LayerNorm of a transposed view takes the slow way, and has gradients.
# What to do: ops::softmax, RmsNorm::forward_diff, ops::layer_norm_slow, rope_slow, or operations of one's own; and after the first
# backward() count the parameters for which get() is None.
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "norms"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
candle-nn = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{DType, Device::Cpu, Module, Result, Tensor, Var, D};
use candle_nn::{ops, rotary_emb, LayerNorm, RmsNorm};

fn main() -> Result<()> {
    let (scale, bias) = (Var::ones(4, DType::F32, &Cpu)?, Var::zeros(4, DType::F32, &Cpu)?);
    let norm = LayerNorm::new(scale.as_tensor().clone(), bias.as_tensor().clone(), 1e-5);
    let rms = RmsNorm::new(scale.as_tensor().clone(), 1e-5);
    let (cos, sin) = (Tensor::ones((4, 2), DType::F32, &Cpu)?, Tensor::zeros((4, 2), DType::F32, &Cpu)?);
    let rows: [(&str, Box<dyn Fn(&Tensor) -> Result<Tensor>>); 9] = [
        ("LayerNorm", Box::new(|x| norm.forward(x))),
        ("LayerNorm of a transposed view", Box::new(|x| norm.forward(&x.t()?))),
        ("layer_norm_slow", Box::new(|x| ops::layer_norm_slow(x, &scale, &bias, 1e-5))),
        ("RmsNorm", Box::new(|x| rms.forward(x))),
        ("RmsNorm::forward_diff", Box::new(|x| rms.forward_diff(x))),
        ("softmax_last_dim", Box::new(ops::softmax_last_dim)),
        ("softmax", Box::new(|x| ops::softmax(x, D::Minus1))),
        ("rope", Box::new(|x| rotary_emb::rope(&x.reshape((1, 1, 4, 4))?, &cos, &sin))),
        ("rope_slow", Box::new(|x| rotary_emb::rope_slow(&x.reshape((1, 1, 4, 4))?, &cos, &sin))),
    ];
    for (name, layer) in &rows {
        let x = Var::from_tensor(&Tensor::arange(0f32, 16.0, &Cpu)?.sin()?.reshape((4, 4))?)?;
        let gradients = layer(&(x.as_tensor() * 2.0)?)?.sqr()?.sum_all()?.backward()?;
        let weight = if name.contains("orm") { format!(", to its weight {}", gradients.get(&scale).is_some()) } else { String::new() };
        println!("{name}: a gradient comes through {}{weight}", gradients.get(&x).is_some());
    }
    Ok(())
}
END
SEEN="LayerNorm: a gradient comes through false, to its weight false
LayerNorm of a transposed view: a gradient comes through true, to its weight true
layer_norm_slow: a gradient comes through true, to its weight true
RmsNorm: a gradient comes through false, to its weight false
RmsNorm::forward_diff: a gradient comes through true, to its weight true
softmax_last_dim: a gradient comes through false
softmax: a gradient comes through true
rope: a gradient comes through false
rope_slow: a gradient comes through true"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
