//! `y = x · Wᵀ`, the layer that nearly all of a transformer's parameters and arithmetic are in.

use super::graph::{elements, read, rows, tensor_like};
use super::matmul::{Matrix, Write, matmul};
use super::params::Param;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};

/// `x` [.., in] times the transpose of `weight` [out, in]: [.., out].
///
/// Backward: the input's gradient is `dy · W`; `dyᵀ · x` is added to the weight's.
pub fn linear(x: &Tensor, weight: &Param) -> Result<Tensor> {
    x.apply_op1(Linear { weight: weight.handle() })
}

struct Linear {
    weight: Param,
}

impl Linear {
    fn sizes(&self) -> (usize, usize) {
        (self.weight.spec().shape[0], self.weight.spec().shape[1])
    }
}

impl CustomOp1 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let ((outs, ins), (n, width)) = (self.sizes(), rows(layout)?);
        if width != ins {
            bail!("{} takes rows of {ins} numbers, not {:?}", self.weight.spec().name, layout.shape());
        }
        let mut y = vec![0.0; n * outs];
        let weight = self.weight.value()?;
        let x = Matrix::new(elements(x, layout)?, n, ins);
        matmul(&mut y, outs, Write::Replace, x, Matrix::new(&weight, outs, ins).t());
        let mut dims = layout.dims().to_vec();
        dims[layout.dims().len() - 1] = outs;
        Ok((CpuStorage::F32(y), dims.into()))
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let (outs, ins) = self.sizes();
        let n = x.elem_count() / ins;
        let mut dx = vec![0.0; n * ins];
        read(dy, |dy| {
            let dy = Matrix::new(dy, n, outs);
            let weight = self.weight.value()?;
            matmul(&mut dx, ins, Write::Replace, dy, Matrix::new(&weight, outs, ins));
            drop(weight);
            read(x, |x| self.weight.add_gradient(|dw| matmul(dw, ins, Write::Add, dy.t(), Matrix::new(x, n, ins))))
        })?;
        Ok(Some(tensor_like(x, dx)?))
    }
}
