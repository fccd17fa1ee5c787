//! Layer norm without bias: centres each row, scales it to variance 1, and multiplies it by a
//! learned gain.

use super::gain::{Backward, Gain};
use super::math::{dot, sum, vectorized};
use super::operation::{Operand, TensorOp, apply};
use super::params::Param;
use candle_core::{Result, Shape};
use std::sync::OnceLock;

/// Added to the variance, as in PyTorch.
const EPSILON: f32 = 1e-5;

/// `(x - mean) / sqrt(variance + 1e-5) · gain` over the last dimension; `gain` is `[D]` (Ba et
/// al., arXiv 1607.06450).
///
/// # Errors
/// If `x` has a different width than the gain, or the gain is not here.
pub fn layer_norm<X: Operand>(x: &X, gain: &Param) -> Result<X> {
    apply(x, LayerNorm { gain: Gain::of(gain), statistics: OnceLock::new() })
}

struct LayerNorm {
    gain: Gain,
    /// Each row's statistics. The forward pass keeps them for the backward pass.
    statistics: OnceLock<Vec<Statistics>>,
}

impl TensorOp for LayerNorm {
    const NAME: &'static str = "layer norm";
    const HAS_WEIGHTS: bool = true;

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (n, gain) = self.gain.for_rows(dims)?;
        let mut y = Vec::with_capacity(x.len());
        let mut statistics = vec![(0.0, 0.0); n];
        vectorized!((x, &*gain, &mut y, &mut statistics[..]), normalise);
        self.statistics.set(statistics).ok();
        Ok((y, dims.into()))
    }

    /// With x̂ the normalised row and g = dy · gain:
    /// `dx = scale · (g - mean(g) - x̂ · mean(g · x̂))`.
    fn input_gradient(&self, x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let statistics = self.statistics.get().map(Vec::as_slice).unwrap_or_default();
        let gain = self.gain.value()?;
        let width = gain.len();
        let mut dx = Vec::with_capacity(x.len());
        let mut dgain = vec![0.0; width];
        vectorized!((x, dy, &*gain, statistics, &mut dx, &mut dgain[..]), gradient,);
        self.gain.keep(dgain);
        Ok(dx)
    }

    fn weight_gradients(&self, _x: &[f32], _dims: &[usize], _dy: &[f32]) -> Result<()> {
        self.gain.add_gradient()
    }
}

/// Mean and 1 / standard deviation of a row.
type Statistics = (f32, f32);

#[inline(always)]
fn normalise((x, gain, y, statistics): (&[f32], &[f32], &mut Vec<f32>, &mut [Statistics])) {
    let width = gain.len();
    let row = &mut vec![0.0; width][..];
    for (x, statistics) in x.chunks_exact(width).zip(statistics) {
        let mean = sum(x) / width as f32;
        for i in 0..width {
            row[i] = x[i] - mean;
        }
        let scale = 1.0 / (dot(row, row) / width as f32 + EPSILON).sqrt();
        for i in 0..width {
            row[i] = row[i] * scale * gain[i];
        }
        y.extend_from_slice(row);
        *statistics = (mean, scale);
    }
}

#[inline(always)]
fn gradient((x, dy, gain, statistics, dx, dgain): Backward<Statistics>) {
    let width = gain.len();
    let normal = &mut vec![0.0; width][..];
    let g = &mut vec![0.0; width][..];
    let dgain = &mut dgain[..width];
    for ((x, dy), &(mean, scale)) in
        x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(statistics)
    {
        for i in 0..width {
            normal[i] = (x[i] - mean) * scale;
        }
        for i in 0..width {
            dgain[i] += dy[i] * normal[i];
        }
        for i in 0..width {
            g[i] = dy[i] * gain[i];
        }
        let a = sum(g) / width as f32;
        let b = dot(g, normal) / width as f32;
        for i in 0..width {
            g[i] = scale * (g[i] - a - normal[i] * b);
        }
        dx.extend_from_slice(g);
    }
}
