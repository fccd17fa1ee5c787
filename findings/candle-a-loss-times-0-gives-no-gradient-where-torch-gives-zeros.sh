#!/usr/bin/env bash
# candle-core and candle-nn 0.11.1: `loss + 0.0 * unused`, with which programs of many ranks give every parameter a gradient.
# One would guess: as in PyTorch, the gradient of what is multiplied by 0 is a tensor of zeros, so that all ranks have the same list.
# What happens: backward() does not walk through a multiplication by the number 0 (`* 0.0`, affine(0.0, _)): the parameter has NO gradient,
# get() returns None. Ranks that reduce what they find then have lists of different lengths, and may wait for each other or mix up tensors;
# SGD and AdamW skip the parameter, weight decay and moments included. It depends on a VALUE: a weight of an auxiliary loss that is
# scheduled from 0.0, or a scale that one rank sets to 0.0, adds or removes parameters. A product with a TENSOR of zeros gives zeros.
# What to do: multiply by a tensor; or reduce over an ordered list of all parameters, with zeros for those that have none.
# (PyTorch 2.15.0, run beside it: zeros, and AdamW decays the parameter to 0.95.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "times"
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
use candle_nn::{AdamW, Optimizer, ParamsAdamW};

fn main() -> Result<()> {
    let zeros = Tensor::zeros((), DType::F32, &Cpu)?;
    let ways: [(&str, Box<dyn Fn(&Tensor) -> Result<Tensor>>); 4] = [
        ("* 0.0", Box::new(|x| x * 0.0)),
        ("affine(0.0, 1.0)", Box::new(|x| x.affine(0.0, 1.0))),
        ("* 1e-30", Box::new(|x| x * 1e-30)),
        ("* a tensor of 0", Box::new(move |x| x * &zeros)),
    ];
    for (name, way) in &ways {
        let (used, unused) = (Var::ones(1, DType::F32, &Cpu)?, Var::ones(1, DType::F32, &Cpu)?);
        let params = ParamsAdamW { lr: 0.1, weight_decay: 0.5, ..Default::default() };
        let mut adam = AdamW::new(vec![used.clone(), unused.clone()], params)?;
        let loss = (used.sum_all()? + way(&unused.sum_all()?)?)?;
        let gradients = loss.backward()?;
        let slope = gradients.get(&unused).map(|slope| slope.to_vec1::<f32>().unwrap());
        adam.step(&gradients)?;
        println!("{name}: gradient {slope:?}, and after a step of AdamW {:?}", unused.to_vec1::<f32>()?);
    }
    Ok(())
}
END
SEEN="* 0.0: gradient None, and after a step of AdamW [1.0]
affine(0.0, 1.0): gradient None, and after a step of AdamW [1.0]
* 1e-30: gradient Some([1e-30]), and after a step of AdamW [0.95]
* a tensor of 0: gradient Some([0.0]), and after a step of AdamW [0.95]"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
