//! Several matrices that take the same input, such as those of queries, keys and values. Their
//! results stand side by side.

use super::few_rows::{FEW, few_rows};
use super::linear::{Turn, times};
use super::matmul::{Matrix, Write, matmul_in};
use super::operation::{Operand, TensorOp, apply, rows};
use super::params::Param;
use super::stored::Precision;
use candle_core::{Result, Shape, bail};

/// `[x · W₁ᵀ | x · W₂ᵀ | …]` for `x` [.., in] and weights [out, in]: [.., sum of outs]. Each
/// parameter keeps its own gradient. The products' factors are as `products` has them.
///
/// # Errors
/// If the last dimension of `x` is not in, or a weight is not here.
pub fn linears<X: Operand>(x: &X, weights: &[&Param], products: Precision) -> Result<X> {
    apply(x, Stacked::of(weights, products, false))
}

/// The same for a pass that generates: few rows are multiplied in a way that reads each weight once
/// and copies none. The sums have a different order, so passes that are compared with training use
/// [`linears`].
///
/// # Errors
/// As [`linears`].
pub fn linears_of_few_rows<X: Operand>(x: &X, weights: &[&Param]) -> Result<X> {
    apply(x, Stacked::of(weights, Precision::F32, true))
}

struct Stacked {
    weights: Vec<Param>,
    products: Precision,
    generates: bool,
}

impl Stacked {
    fn of(weights: &[&Param], products: Precision, generates: bool) -> Stacked {
        let weights = weights.iter().map(|weight| weight.handle()).collect();
        Stacked { weights, products, generates }
    }

    /// The sum of the outputs, and the number of inputs.
    fn sizes(&self) -> (usize, usize) {
        let shapes = self.weights.iter().map(|weight| &weight.spec().shape);
        (
            shapes.clone().map(|shape| shape[0]).sum(),
            shapes.clone().map(|shape| shape[1]).next().unwrap_or(0),
        )
    }

    /// Calls `each` with every weight and its first column in the result.
    fn each(&self, mut each: impl FnMut(&Param, usize) -> Result<()>) -> Result<()> {
        let mut column = 0;
        for weight in &self.weights {
            each(weight, column)?;
            column += weight.spec().shape[0];
        }
        Ok(())
    }
}

impl TensorOp for Stacked {
    const NAME: &'static str = "linear";
    const HAS_WEIGHTS: bool = true;

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (outs, ins) = self.sizes();
        let (n, width) = rows(dims)?;
        if let Some(other) = self.weights.iter().find(|weight| weight.spec().shape[1] != width) {
            bail!(
                "{} takes rows of {} numbers, not {dims:?}",
                other.spec().name,
                other.spec().shape[1]
            );
        }
        let mut y = vec![0.0; n * outs];
        self.each(|weight, column| {
            if self.generates && n <= FEW {
                return weight.stored(|weight| few_rows(&mut y[column..], outs, x, weight, ins));
            }
            let x = Matrix::new(x, n, ins);
            let y = &mut y[column..];
            times(weight, Turn::Transposed, self.products, y, outs, Write::Replace, x)
        })?;
        Ok((y, [&dims[..dims.len() - 1], &[outs]].concat().into()))
    }

    fn input_gradient(&self, x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (outs, ins) = self.sizes();
        let n = x.len() / ins;
        let mut dx = vec![0.0; x.len()];
        self.each(|weight, column| {
            let write = if column == 0 { Write::Replace } else { Write::Add };
            let rows = weight.spec().shape[0];
            let dy = Matrix::new(dy, n, outs).cols(column..column + rows);
            times(weight, Turn::AsIs, self.products, &mut dx, ins, write, dy)
        })?;
        Ok(dx)
    }

    fn weight_gradients(&self, x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<()> {
        let (outs, ins) = self.sizes();
        let n = x.len() / ins;
        // The last weight first: gradients become complete from the model's end to its start.
        let mut column = outs;
        for weight in self.weights.iter().rev() {
            let rows = weight.spec().shape[0];
            column -= rows;
            let dy = Matrix::new(dy, n, outs).cols(column..column + rows);
            let x = Matrix::new(x, n, ins);
            weight
                .write_gradient(|dw, write| matmul_in(self.products, dw, ins, write, dy.t(), x))?;
        }
        Ok(())
    }
}
