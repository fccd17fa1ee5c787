#!/usr/bin/env bash
# candle-nn 0.11.1 on CPUs, f32: loss::binary_cross_entropy_with_logit, the loss of classifiers and of reward models.
# One would guess: what the name says elsewhere: computed from the logit itself, so that a sure answer is safe. That is why it takes one.
# What happens: it computes the sigmoid, then the logarithms of p and of 1 - p. From a logit of about 17 on, p is 1 in f32: the loss of a
# RIGHT answer is 0 times minus infinity, NaN, and that of a wrong one is infinite; the gradient is NaN in both cases. Below -89
# it is the same. So a model that has learnt well ends its own run, by one sure example of a batch. At 16 the loss
# of a wrong one is already 0.06 too small.
# What to do: relu(x) - x * target + log(1 + exp(-|x|)), written out (`stable` below; right in all rows).
# (PyTorch 2.15.0's binary_cross_entropy_with_logits, run beside it: 4.1e-8 and 17 at 17, 90 at -90.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "sure"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
candle-nn = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{Device::Cpu, Result, Tensor, Var};
use candle_nn::loss::binary_cross_entropy_with_logit;

fn stable(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    let small = (x.abs()?.neg()?.exp()? + 1.0)?.log()?;
    ((x.relu()? - (x * target)?)? + small)?.mean_all()
}

fn main() -> Result<()> {
    for logit in [10f32, 16.0, 17.0, -88.0, -90.0] {
        for target in [0f32, 1.0] {
            let (x, target_) = (Var::from_slice(&[logit], 1, &Cpu)?, Tensor::new(&[target], &Cpu)?);
            let loss = binary_cross_entropy_with_logit(&x, &target_)?;
            let slope = loss.backward()?.get(&x).unwrap().to_vec1::<f32>()?[0];
            let right = stable(&x, &target_)?.to_scalar::<f32>()?;
            println!("logit {logit}, target {target}: {:.3}, gradient {slope:.3}; stable {right:.3}", loss.to_scalar::<f32>()?);
        }
    }
    Ok(())
}
END
SEEN="logit 10, target 0: 10.000, gradient 1.000; stable 10.000
logit 10, target 1: 0.000, gradient -0.000; stable 0.000
logit 16, target 0: 15.942, gradient 1.000; stable 16.000
logit 16, target 1: 0.000, gradient -0.000; stable 0.000
logit 17, target 0: inf, gradient NaN; stable 17.000
logit 17, target 1: NaN, gradient NaN; stable 0.000
logit -88, target 0: 0.000, gradient 0.000; stable 0.000
logit -88, target 1: 88.000, gradient -1.000; stable 88.000
logit -90, target 0: NaN, gradient NaN; stable 0.000
logit -90, target 1: inf, gradient NaN; stable 90.000"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
