//! SwiGLU: a gate decides how much of each number passes (Shazeer, arXiv 2002.05202).

use super::math::{exp, vectorized};
use super::operation::{Operand, TensorOp, apply};
use candle_core::{Result, Shape, bail};

/// `silu(gate) · up`, with `silu(g) = g / (1 + e^-g)`. A row of `x` [.., 2·F] holds the gate
/// and then `up`: [.., F].
///
/// # Errors
/// If a row has an odd number of elements.
pub fn swiglu<X: Operand>(x: &X) -> Result<X> {
    apply(x, SwiGlu)
}

struct SwiGlu;

impl TensorOp for SwiGlu {
    const NAME: &'static str = "SwiGLU";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (outer, width) = halves(dims)?;
        let mut y = vec![0.0; x.len() / 2];
        vectorized!((x, width, &mut y[..]), gated);
        Ok((y, [outer, &[width]].concat().into()))
    }

    fn input_gradient(&self, x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (_, width) = halves(dims)?;
        let mut dx = vec![0.0; x.len()];
        vectorized!((x, width, dy, &mut dx[..]), gradient);
        Ok(dx)
    }
}

/// The outer dimensions, and half of the last one.
fn halves(dims: &[usize]) -> Result<(&[usize], usize)> {
    match dims {
        [outer @ .., both] if *both > 0 && both % 2 == 0 => Ok((outer, both / 2)),
        _ => bail!("SwiGLU takes rows of a gate and as many numbers, not {dims:?}"),
    }
}

#[inline(always)]
fn gated((x, width, y): (&[f32], usize, &mut [f32])) {
    for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
        let (gate, up) = x.split_at(width);
        y.iter_mut()
            .zip(gate)
            .zip(up)
            .for_each(|((y, &g), up)| *y = g / (1.0 + exp(-g)) * up);
    }
}

/// With s = 1 / (1 + e^-g): `dgate = dy · up · s · (1 + g · (1 - s))` and `dup = dy · g · s`.
#[inline(always)]
fn gradient((x, width, dy, dx): (&[f32], usize, &[f32], &mut [f32])) {
    let rows = x
        .chunks_exact(2 * width)
        .zip(dy.chunks_exact(width))
        .zip(dx.chunks_exact_mut(2 * width));
    for ((x, dy), dx) in rows {
        let (gate, up) = x.split_at(width);
        let (dgate, dup) = dx.split_at_mut(width);
        let numbers = gate.iter().zip(up).zip(dy);
        for (((&g, up), dy), (dgate, dup)) in numbers.zip(dgate.iter_mut().zip(dup)) {
            let s = 1.0 / (1.0 + exp(-g));
            *dgate = dy * up * s * (1.0 + g * (1.0 - s));
            *dup = dy * g * s;
        }
    }
}
