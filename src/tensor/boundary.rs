//! A backward pass whose two ends lie on different ranks. A pipeline stage receives the gradient of its result from the next
//! stage, and sends the gradient of its input to the previous one.

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, Var, bail};

/// The backward pass of `y`, given `dy`, its gradient. Every operation gets the bits that it would get if the graph went on
/// behind `y`.
pub fn backward_from(y: &Tensor, dy: &Tensor) -> Result<GradStore> {
    if y.shape() != dy.shape() {
        bail!("the gradient of a result of shape {:?} cannot have shape {:?}", y.dims(), dy.dims());
    }
    // candle starts at a scalar. Nothing reads this one's value.
    y.apply_op1(Beyond { dy: dy.clone() })?.backward()
}

/// The gradient of `x`, a variable that the graph was built upon.
pub fn gradient(gradients: &GradStore, x: &Var) -> Result<Tensor> {
    match gradients.get(x) {
        Some(dx) => Ok(dx.clone()),
        None => bail!("this backward pass did not come by the variable of shape {:?}", x.dims()),
    }
}

/// The rest of the graph, behind a result.
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
