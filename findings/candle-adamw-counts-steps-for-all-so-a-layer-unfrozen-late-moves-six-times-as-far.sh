#!/usr/bin/env bash
# candle-nn 0.11.1: AdamW, and a parameter that gets its first gradient late: an unfrozen layer, an expert that no token had chosen.
# One would guess: Adam's first step moves it by one learning rate, whenever that is, as in PyTorch, which counts steps per parameter.
# What happens: one counter is kept for all parameters, and goes on while some have no gradient. Their moments begin at zero, and the
# correction for that is the one of a late step, that is none. With gradients of one size the first step moves by 3.2 learning rates
# after 10000 steps of the others, the largest by 6.6, and 60 steps move 321 where 60 is right, without an error.
# A parameter without a gradient is also left out of weight decay, as in PyTorch.
# What to do: a new AdamW when something is unfrozen (it forgets all moments, and its own warm-up begins), or a warm-up of the learning
# rate from there; or an optimizer of one's own. (PyTorch 2.15.0, run beside it with 0, 100 and 1000 steps: 1.0, 1.0 and 60 each time.)
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "late"
version = "0.0.0"
edition = "2021"
[dependencies]
candle-core = "=0.11.1"
candle-nn = "=0.11.1"
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use candle_core::{Device::Cpu, Result, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};

fn main() -> Result<()> {
    for before in [0, 100, 1000, 10_000] {
        let (early, late) = (Var::from_slice(&[0f32], 1, &Cpu)?, Var::from_slice(&[0f32], 1, &Cpu)?);
        let params = ParamsAdamW { lr: 1.0, weight_decay: 0.0, ..Default::default() };
        let mut adam = AdamW::new(vec![early.clone(), late.clone()], params)?;
        for _ in 0..before {
            adam.backward_step(&early.sum_all()?)?; // the other one is frozen
        }
        let mut places = vec![0f32];
        for _ in 0..60 {
            adam.backward_step(&(early.sum_all()? + late.sum_all()?)?)?; // both have the gradient 1
            places.push(-late.get(0)?.to_scalar::<f32>()?);
        }
        let moves: Vec<f32> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let largest = moves.iter().copied().fold(0.0, f32::max);
        println!("after {before} steps of the other: first {:.1}, largest {largest:.1}, 60 steps {:.0}", moves[0], places[60]);
    }
    Ok(())
}
END
SEEN="after 0 steps of the other: first 1.0, largest 1.0, 60 steps 60
after 100 steps of the other: first 1.0, largest 2.1, 60 steps 111
after 1000 steps of the other: first 2.5, largest 5.2, 60 steps 257
after 10000 steps of the other: first 3.2, largest 6.6, 60 steps 321"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
