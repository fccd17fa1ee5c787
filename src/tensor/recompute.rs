//! Activations that are computed twice, because that costs less than keeping them (Chen et al.,
//! arXiv 1604.06174).

use super::{backward_from, gradient, read};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor, Var};

/// Applies `layers` to `x`, and keeps nothing but `x` for the backward pass. The backward pass
/// first runs `layers` again. So `layers` must compute the same bits each time.
///
/// # Errors
/// If `layers` fails.
pub fn recompute(
    x: &Tensor,
    layers: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    x.apply_op1(Recompute(layers))
}

struct Recompute<F>(F);

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync> CustomOp1 for Recompute<F> {
    fn name(&self) -> &'static str {
        "recompute"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = super::in_place::elements(x, layout)?.to_vec();
        // This tensor depends on no variable, so candle records no graph, and intermediate results
        // are freed.
        let y = (self.0)(&Tensor::from_vec(x, layout.shape(), &Device::Cpu)?)?;
        Ok((CpuStorage::F32(read(&y, |y| Ok(y.to_vec()))?), y.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let x = Var::from_tensor(x)?;
        let y = (self.0)(&x)?;
        Ok(Some(gradient(&backward_from(&y, dy)?, &x)?))
    }
}
