//! A backward pass that starts and ends on different ranks. A pipeline stage receives the gradient
//! of its result from the next stage, and sends the gradient of its input to the previous stage.

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, Var, bail};

/// Runs the backward pass of `y`, given its gradient `dy`. Every operation gets the same bits as in
/// a graph that continues after `y`.
///
/// # Errors
/// If `dy` has a different shape than `y`, or an operation's backward pass fails.
pub fn backward_from(y: &Tensor, dy: &Tensor) -> Result<GradStore> {
    if y.shape() != dy.shape() {
        bail!(
            "the gradient of a result of shape {:?} cannot have shape {:?}",
            y.dims(),
            dy.dims()
        );
    }
    // candle's backward pass starts at a scalar. No code reads this scalar's value.
    y.apply_op1(Beyond { dy: dy.clone() })?.backward()
}

/// The gradient of the variable `x`, at which the graph begins.
///
/// # Errors
/// If the backward pass did not reach `x`.
pub fn gradient(gradients: &GradStore, x: &Var) -> Result<Tensor> {
    match gradients.get(x) {
        Some(dx) => Ok(dx.clone()),
        None => bail!("this backward pass did not reach the variable of shape {:?}", x.dims()),
    }
}

/// Represents the rest of the graph, after a result.
struct Beyond {
    dy: Tensor,
}

impl CustomOp1 for Beyond {
    fn name(&self) -> &'static str {
        "beyond"
    }

    fn cpu_fwd(&self, _y: &CpuStorage, _layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(())))
    }

    fn bwd(&self, _y: &Tensor, _beyond: &Tensor, _one: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.dy.clone()))
    }
}
