//! `y = x · Wᵀ`, or `y = x · Wᵀ + b`: the layer that nearly all of a model's parameters and arithmetic are in.

use super::graph::{elements, read, rows, tensor_like};
use super::math::vectorized;
use super::matmul::{Matrix, Write, matmul};
use super::params::Param;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};

/// `x` [.., in] times the transpose of `weight` [out, in]: [.., out].
///
/// Backward: the input's gradient is `dy · W`; `dyᵀ · x` is added to the weight's.
pub fn linear(x: &Tensor, weight: &Param) -> Result<Tensor> {
    x.apply_op1(Linear { weight: weight.handle(), bias: None })
}

/// [`linear`] plus `bias` (one number an output), the same for every row.
///
/// Backward: as there; the sum of `dy`'s rows is added to the bias's gradient.
pub fn linear_bias(x: &Tensor, weight: &Param, bias: &Param) -> Result<Tensor> {
    x.apply_op1(Linear { weight: weight.handle(), bias: Some(bias.handle()) })
}

struct Linear {
    weight: Param,
    bias: Option<Param>,
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
        let (mut y, write) = match &self.bias {
            None => (vec![0.0; n * outs], Write::Replace),
            Some(bias) if bias.spec().numel() != outs => {
                bail!("{} has {} numbers for {outs} outputs", bias.spec().name, bias.spec().numel())
            }
            // The product is added to rows that hold the bias already: no second pass over y.
            Some(bias) => (bias.value()?.repeat(n), Write::Add),
        };
        let weight = self.weight.value()?;
        let x = Matrix::new(elements(x, layout)?, n, ins);
        matmul(&mut y, outs, write, x, Matrix::new(&weight, outs, ins).t());
        let mut dims = layout.dims().to_vec();
        dims[layout.dims().len() - 1] = outs;
        Ok((CpuStorage::F32(y), dims.into()))
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let (outs, ins) = self.sizes();
        let n = x.elem_count() / ins;
        let mut dx = vec![0.0; n * ins];
        read(dy, |all_dy| {
            let dy = Matrix::new(all_dy, n, outs);
            let weight = self.weight.value()?;
            matmul(&mut dx, ins, Write::Replace, dy, Matrix::new(&weight, outs, ins));
            drop(weight);
            // The bias first: gradients are completed from the model's end to its start, and it is declared last.
            if let Some(bias) = &self.bias {
                bias.add_gradient(|db| vectorized((db, all_dy), add_rows))?;
            }
            read(x, |x| self.weight.add_gradient(|dw| matmul(dw, ins, Write::Add, dy.t(), Matrix::new(x, n, ins))))
        })?;
        Ok(Some(tensor_like(x, dx)?))
    }
}

/// Adds every row of `rows` to `sum`, the first row first.
#[inline(always)]
fn add_rows((sum, rows): (&mut [f32], &[f32])) {
    for row in rows.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
}
