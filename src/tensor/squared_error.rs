//! Squared error: the distance of numbers from their targets.

use super::operation::{Operand, TensorOp, apply};
use candle_core::{Result, Shape, bail};

/// The sum of `(y - target)²` over all elements, a scalar; `target` holds one number for each
/// element of `y`, row-major.
///
/// # Errors
/// If `y` and `target` have different numbers of elements.
pub fn squared_error<X: Operand>(y: &X, target: &[f32]) -> Result<X> {
    apply(y, SquaredError { target: target.to_vec() })
}

struct SquaredError {
    target: Vec<f32>,
}

impl TensorOp for SquaredError {
    const NAME: &'static str = "squared error";

    fn forward(&self, y: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        if y.len() != self.target.len() {
            bail!("{dims:?} has {} elements, and the target {}", y.len(), self.target.len());
        }
        // The sum is f64: thousands of squares of similar size would lose digits in f32.
        let sum: f64 = y
            .iter()
            .zip(&self.target)
            .map(|(y, target)| f64::from(y - target).powi(2))
            .sum();
        Ok((vec![sum as f32], Shape::from(())))
    }

    /// `2 (y - target)`
    fn input_gradient(&self, y: &[f32], _dims: &[usize], dloss: &[f32]) -> Result<Vec<f32>> {
        let scale = 2.0 * dloss[0];
        Ok(y.iter().zip(&self.target).map(|(y, target)| scale * (y - target)).collect())
    }
}
