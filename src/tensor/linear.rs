//! `y = x · Wᵀ`, or `y = x · Wᵀ + b`: the layer that holds nearly all of a model's parameters and
//! does nearly all of its arithmetic.

use super::few_rows::Numbers;
use super::math::vectorized;
use super::matmul::{self, Matrix, Write, matmul_bf16, matmul_in};
use super::operation::{Operand, TensorOp, apply, rows};
use super::params::Param;
use super::stored::Precision;
use candle_core::{Result, Shape, bail};

/// `x` [.., in] times the transpose of `weight` [out, in]: [.., out]. The factors of all three
/// products, forward and backward, are as `products` has them.
///
/// Backward: the input's gradient is `dy · W`; `dyᵀ · x` is added to the weight's.
///
/// # Errors
/// If the last dimension of `x` is not in, or the weight is not here.
pub fn linear<X: Operand>(x: &X, weight: &Param, products: Precision) -> Result<X> {
    apply(x, Linear { weight: weight.handle(), bias: None, products })
}

/// [`linear`] plus `bias`, one number per output. Every row gets the same bias.
///
/// Backward: like [`linear`]; in addition, the sum of `dy`'s rows is added to the bias's gradient.
///
/// # Errors
/// As [`linear`].
pub fn linear_bias<X: Operand>(
    x: &X,
    weight: &Param,
    bias: &Param,
    products: Precision,
) -> Result<X> {
    apply(x, Linear { weight: weight.handle(), bias: Some(bias.handle()), products })
}

struct Linear {
    weight: Param,
    bias: Option<Param>,
    products: Precision,
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
        let x = Matrix::new(x, n, ins);
        let y = match &self.bias {
            None => product(&self.weight, Turn::Transposed, self.products, x)?,
            Some(bias) if bias.spec().numel() != outs => {
                bail!("{} has {} numbers for {outs} outputs", bias.spec().name, bias.spec().numel())
            }
            // The product is added to rows that already hold the bias, which saves a second pass
            // over y.
            Some(bias) => {
                let mut y = bias.value()?.repeat(n);
                times(&self.weight, Turn::Transposed, self.products, &mut y, outs, Write::Add, x)?;
                y
            }
        };
        let shape = [&dims[..dims.len() - 1], &[outs]].concat();
        Ok((y, shape.into()))
    }

    fn input_gradient(&self, x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (outs, ins) = self.sizes();
        let dy = Matrix::new(dy, x.len() / ins, outs);
        product(&self.weight, Turn::AsIs, self.products, dy)
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
        let x = Matrix::new(x, n, ins);
        self.weight
            .write_gradient(|dw, write| matmul_in(self.products, dw, ins, write, dy.t(), x))
    }
}

/// How a weight [out, in] is the right factor of a product.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Turn {
    AsIs,
    Transposed,
}

impl Turn {
    fn view<'a, T>(self, weight: &Param, elements: &'a [T]) -> Matrix<'a, T> {
        let shape = &weight.spec().shape;
        let matrix = Matrix::new(elements, shape[0], shape[1]);
        if self == Turn::Transposed { matrix.t() } else { matrix }
    }
}

/// `x · W`, or `x · Wᵀ`. A bf16 product reads the weight in the type in which this rank stores it.
///
/// # Errors
/// If the weight is not here.
fn product(weight: &Param, turn: Turn, products: Precision, x: Matrix) -> Result<Vec<f32>> {
    Ok(match products {
        Precision::F32 => matmul::product(x, turn.view(weight, &weight.value()?)),
        Precision::Bf16 => weight.stored(|elements| match elements {
            Numbers::F32(w) => matmul::product_bf16(x, turn.view(weight, w)),
            Numbers::Bf16(w) => matmul::product_bf16(x, turn.view(weight, w)),
        })?,
    })
}

/// Writes `x · W`, or `x · Wᵀ`, to `c` with rows of `stride`. A bf16 product reads the weight in
/// the type in which this rank stores it.
///
/// # Errors
/// If the weight is not here.
pub(super) fn times(
    weight: &Param,
    turn: Turn,
    products: Precision,
    c: &mut [f32],
    stride: usize,
    write: Write,
    x: Matrix,
) -> Result<()> {
    match products {
        Precision::F32 => {
            matmul::matmul(c, stride, write, x, turn.view(weight, &weight.value()?));
        }
        Precision::Bf16 => weight.stored(|elements| match elements {
            Numbers::F32(w) => matmul_bf16(c, stride, write, x, turn.view(weight, w)),
            Numbers::Bf16(w) => matmul_bf16(c, stride, write, x, turn.view(weight, w)),
        })?,
    }
    Ok(())
}

/// Adds every row of `rows` to `sum`, the first row first.
#[inline(always)]
fn add_rows((sum, rows): (&mut [f32], &[f32])) {
    for row in rows.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Init, Params};

    /// Products of all three kinds round their factors to bf16.
    #[test]
    fn the_weights_gradient_is_a_product_of_bf16() {
        // Between 1 and the next bf16, 1 + 2^-7.
        let between = 1.0 + 2f32.powi(-9);
        for (products, expected) in [(Precision::F32, between), (Precision::Bf16, 1.0)] {
            let params = Params::new();
            let weight = params.declare("weight", &[1, 1], Init::Constant(1.0)).unwrap();
            params.allocate(1);
            let layer = Linear { weight: weight.handle(), bias: None, products };
            for (x, dy) in [([between], [1.0]), ([1.0], [between])] {
                params.zero_gradients();
                layer.weight_gradients(&x, &[1, 1], &dy).unwrap();
                assert_eq!(*params.gradients(), [expected], "{products:?}");
            }
        }
    }

    /// An expert without tokens contributes zeros, and not what its gradient was.
    #[test]
    fn a_contribution_of_no_rows_leaves_no_earlier_gradient() {
        for products in [Precision::F32, Precision::Bf16] {
            let params = Params::new();
            let weight = params.declare("weight", &[2, 3], Init::Constant(1.0)).unwrap();
            params.allocate(1);
            weight.add_gradient(|gradient| gradient.fill(f32::NAN)).unwrap();
            params.zero_gradients();
            let layer = Linear { weight: weight.handle(), bias: None, products };
            layer.weight_gradients(&[], &[0, 3], &[]).unwrap();
            assert_eq!(*params.gradients(), [0.0; 6], "{products:?}");
        }
    }
}
