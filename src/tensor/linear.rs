//! `y = x · Wᵀ`, or `y = x · Wᵀ + b`: the layer that holds nearly all of a model's parameters and
//! does nearly all of its arithmetic.

use super::graph::{TensorOp, apply, rows};
use super::math::vectorized;
use super::matmul::{Matrix, Write, matmul};
use super::params::Param;
use candle_core::{Result, Shape, Tensor, bail};

/// `x` [.., in] times the transpose of `weight` [out, in]: [.., out].
///
/// Backward: the input's gradient is `dy · W`; `dyᵀ · x` is added to the weight's.
///
/// # Errors
/// If the last dimension of `x` is not in, or the weight is not here.
pub fn linear(x: &Tensor, weight: &Param) -> Result<Tensor> {
    apply(x, Linear { weight: weight.handle(), bias: None })
}

/// [`linear`] plus `bias`, one number per output. Every row gets the same bias.
///
/// Backward: like [`linear`]; in addition, the sum of `dy`'s rows is added to the bias's gradient.
///
/// # Errors
/// As [`linear`].
pub fn linear_bias(x: &Tensor, weight: &Param, bias: &Param) -> Result<Tensor> {
    apply(x, Linear { weight: weight.handle(), bias: Some(bias.handle()) })
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

impl TensorOp for Linear {
    const NAME: &'static str = "linear";
    const HAS_WEIGHTS: bool = true;

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (outs, ins) = self.sizes();
        let (n, width) = rows(dims)?;
        if width != ins {
            bail!("{} takes rows of {ins} numbers, not {dims:?}", self.weight.spec().name);
        }
        let (mut y, write) = match &self.bias {
            None => (vec![0.0; n * outs], Write::Replace),
            Some(bias) if bias.spec().numel() != outs => {
                bail!("{} has {} numbers for {outs} outputs", bias.spec().name, bias.spec().numel())
            }
            // The product is added to rows that already hold the bias, which saves a second pass
            // over y.
            Some(bias) => (bias.value()?.repeat(n), Write::Add),
        };
        let weight = self.weight.value()?;
        let x = Matrix::new(x, n, ins);
        matmul(&mut y, outs, write, x, Matrix::new(&weight, outs, ins).t());
        let shape = [&dims[..dims.len() - 1], &[outs]].concat();
        Ok((y, shape.into()))
    }

    fn input_gradient(&self, x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (outs, ins) = self.sizes();
        let mut dx = vec![0.0; x.len()];
        let dy = Matrix::new(dy, x.len() / ins, outs);
        matmul(&mut dx, ins, Write::Replace, dy, Matrix::new(&self.weight.value()?, outs, ins));
        Ok(dx)
    }

    fn weight_gradients(&self, x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<()> {
        let (outs, ins) = self.sizes();
        let n = x.len() / ins;
        // The bias first: gradients become complete from the model's end to its start, and the bias
        // is declared last.
        if let Some(bias) = &self.bias {
            bias.add_gradient(|db| vectorized!((db, dy), add_rows))?;
        }
        let dy = Matrix::new(dy, n, outs);
        self.weight
            .add_gradient(|dw| matmul(dw, ins, Write::Add, dy.t(), Matrix::new(x, n, ins)))
    }
}

/// Adds every row of `rows` to `sum`, the first row first.
#[inline(always)]
fn add_rows((sum, rows): (&mut [f32], &[f32])) {
    for row in rows.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
}
