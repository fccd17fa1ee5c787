//! Activations as bf16 has them, in tensors of f32.

use super::operation::{Operand, TensorOp, consume};
use super::stored::Precision;
use candle_core::{Result, Shape};

/// Rounds every element of `x` to the nearest bf16, and its gradient too: what a model whose
/// activations are bf16 keeps. `x` is used up.
///
/// # Errors
/// If `x` is not f32.
pub fn round_to_bf16<X: Operand>(x: X) -> Result<X> {
    consume(x, Rounded)
}

struct Rounded;

impl TensorOp for Rounded {
    const NAME: &'static str = "rounding";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        Ok((Precision::Bf16.rounded(x), dims.into()))
    }

    fn input_gradient(&self, _x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        Ok(Precision::Bf16.rounded(dy))
    }
}
