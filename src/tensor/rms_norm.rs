//! RMSNorm: scales each row to mean square 1, and multiplies it by a learned gain.

use super::gain::{Backward, Gain};
use super::math::{dot, vectorized};
use super::operation::{Operand, TensorOp, apply};
use super::params::Param;
use candle_core::{Result, Shape};
use std::sync::OnceLock;

/// `x / sqrt(mean(x²) + epsilon) · gain` over the last dimension; `gain` is `[D]` (Zhang and
/// Sennrich, arXiv 1910.07467).
///
/// # Errors
/// If `x` has a different width than the gain, or the gain is not here.
pub fn rms_norm<X: Operand>(x: &X, gain: &Param, epsilon: f32) -> Result<X> {
    apply(x, RmsNorm { gain: Gain::of(gain), epsilon, scales: OnceLock::new() })
}

struct RmsNorm {
    gain: Gain,
    epsilon: f32,
    /// Each row's factor. The forward pass keeps them for the backward pass.
    scales: OnceLock<Vec<f32>>,
}

impl TensorOp for RmsNorm {
    const NAME: &'static str = "RMS norm";
    const HAS_WEIGHTS: bool = true;

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (n, gain) = self.gain.for_rows(dims)?;
        let mut y = Vec::with_capacity(x.len());
        let mut scales = vec![0.0; n];
        vectorized!((x, &*gain, self.epsilon, &mut y, &mut scales[..]), normalise,);
        self.scales.set(scales).ok();
        Ok((y, dims.into()))
    }

    /// With x̂ the normalised row and g = dy · gain: `dx = scale · (g - x̂ · mean(g · x̂))`.
    fn input_gradient(&self, x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let scales = self.scales.get().map(Vec::as_slice).unwrap_or_default();
        let gain = self.gain.value()?;
        let mut dx = Vec::with_capacity(x.len());
        let mut dgain = vec![0.0; gain.len()];
        vectorized!((x, dy, &*gain, scales, &mut dx, &mut dgain[..]), gradient,);
        self.gain.keep(dgain);
        Ok(dx)
    }

    fn weight_gradients(&self, _x: &[f32], _dims: &[usize], _dy: &[f32]) -> Result<()> {
        self.gain.add_gradient()
    }
}

#[inline(always)]
fn normalise((x, gain, epsilon, y, scales): (&[f32], &[f32], f32, &mut Vec<f32>, &mut [f32])) {
    let width = gain.len();
    let row = &mut vec![0.0; width][..];
    for (x, scale) in x.chunks_exact(width).zip(scales) {
        *scale = 1.0 / (dot(x, x) / width as f32 + epsilon).sqrt();
        for i in 0..width {
            row[i] = x[i] * *scale * gain[i];
        }
        y.extend_from_slice(row);
    }
}

#[inline(always)]
fn gradient((x, dy, gain, scales, dx, dgain): Backward<f32>) {
    let width = gain.len();
    let normal = &mut vec![0.0; width][..];
    let g = &mut vec![0.0; width][..];
    let dgain = &mut dgain[..width];
    for ((x, dy), &scale) in x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(scales) {
        for i in 0..width {
            normal[i] = x[i] * scale;
        }
        for i in 0..width {
            dgain[i] += dy[i] * normal[i];
        }
        for i in 0..width {
            g[i] = dy[i] * gain[i];
        }
        let mean = dot(g, normal) / width as f32;
        for i in 0..width {
            g[i] = scale * (g[i] - normal[i] * mean);
        }
        dx.extend_from_slice(g);
    }
}
