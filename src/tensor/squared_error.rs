//! Squared error: how far numbers are from what they should be.

use super::graph::{elements, read, tensor_like};
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};

/// The sum of `(y - target)²` over all elements, a scalar; `target` holds one number for each element of `y`, row-major.
pub fn squared_error(y: &Tensor, target: &[f32]) -> Result<Tensor> {
    y.apply_op1(SquaredError { target: target.to_vec() })
}

struct SquaredError {
    target: Vec<f32>,
}

impl CustomOp1 for SquaredError {
    fn name(&self) -> &'static str {
        "squared_error"
    }

    fn cpu_fwd(&self, y: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let y = elements(y, layout)?;
        if y.len() != self.target.len() {
            bail!("{:?} has {} elements, and the target {}", layout.shape(), y.len(), self.target.len());
        }
        // Added up in f64: thousands of squares of similar size would lose digits in f32.
        let sum: f64 = y.iter().zip(&self.target).map(|(y, target)| f64::from(y - target).powi(2)).sum();
        Ok((CpuStorage::F32(vec![sum as f32]), Shape::from(())))
    }

    /// `2 (y - target)`
    fn bwd(&self, y: &Tensor, _loss: &Tensor, dloss: &Tensor) -> Result<Option<Tensor>> {
        let scale = 2.0 * dloss.to_scalar::<f32>()?;
        let mut dy = vec![0.0; y.elem_count()];
        read(y, |y| {
            let elements = dy.iter_mut().zip(y).zip(&self.target);
            elements.for_each(|((dy, y), target)| *dy = scale * (y - target));
            Ok(())
        })?;
        Ok(Some(tensor_like(y, dy)?))
    }
}
