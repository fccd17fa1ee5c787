//! Operations of one input, as functions of slices: how most are written, and how they get onto a
//! tape, or into candle's graph.

use super::profile;
use super::tape::{Activation, Deferred, Floats, Operation, Tape};
use crate::memory::in_large_pages;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout, Result, Shape, Storage, Tensor, bail};
use std::sync::Arc;

/// A function of one f32 tensor with its own backward pass, over slices. Weights are not tensors
/// here. An operation holds handles on them, reads them in both passes, and adds their gradients
/// through the handles.
pub trait TensorOp: Send + Sync + 'static {
    const NAME: &'static str;
    /// Whether the operation has weights. Without any,
    /// [`weight_gradients`](TensorOp::weight_gradients) is not called.
    const HAS_WEIGHTS: bool = false;
    /// Whether the backward pass reads the operation's result, which is kept for it.
    const READS_RESULT: bool = false;

    /// Computes the result and its shape, for `x` of shape `dims`, row-major.
    ///
    /// # Errors
    /// If `x` does not have a shape that the operation takes, or its weights are not here.
    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)>;

    /// Computes the gradient of `x`, given the result's gradient `dy`. The previous operation waits
    /// for it.
    ///
    /// # Errors
    /// If the operation's weights are not here.
    fn input_gradient(&self, x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>>;

    /// [`input_gradient`](TensorOp::input_gradient) for an operation whose backward pass also reads
    /// its result `y`: one with [`READS_RESULT`](TensorOp::READS_RESULT).
    ///
    /// # Errors
    /// As [`input_gradient`](TensorOp::input_gradient).
    fn gradient_beside(
        &self,
        x: &[f32],
        dims: &[usize],
        _y: &[f32],
        dy: &[f32],
    ) -> Result<Vec<f32>> {
        self.input_gradient(x, dims, dy)
    }

    /// Adds the weights' gradients through their handles. No operation waits for them, so they may
    /// be computed later: see [`Deferred`].
    ///
    /// # Errors
    /// As [`Param::add_gradient`](super::Param::add_gradient).
    fn weight_gradients(&self, _x: &[f32], _dims: &[usize], _dy: &[f32]) -> Result<()> {
        Ok(())
    }
}

/// What operations take: the library's activations, and the tensors of whoever brings candle's
/// graph along.
pub trait Operand: Clone {
    fn dims(&self) -> &[usize];

    /// Whether a backward pass may follow.
    fn is_recorded(&self) -> bool;

    /// Applies `op`. `keeps_input`: whether its backward pass gets the elements of this value, or
    /// an empty slice.
    ///
    /// # Errors
    /// If the value is not contiguous f32 on the CPU, or the operation fails.
    fn applied(self, op: impl TensorOp, keeps_input: bool) -> Result<Self>;
}

/// Applies `op` to `x`.
///
/// # Errors
/// If `x` is not contiguous f32 on the CPU, or the operation fails.
pub fn apply<X: Operand>(x: &X, op: impl TensorOp) -> Result<X> {
    x.clone().applied(op, true)
}

/// [`apply`] for an operation whose backward pass does not read `x`: the pass gets an empty slice,
/// and nothing keeps `x` for it.
///
/// # Errors
/// As [`apply`].
pub fn consume<X: Operand>(x: X, op: impl TensorOp) -> Result<X> {
    x.applied(op, false)
}

impl Operand for Activation {
    fn dims(&self) -> &[usize] {
        Activation::dims(self)
    }

    fn is_recorded(&self) -> bool {
        Activation::is_recorded(self)
    }

    fn applied(self, op: impl TensorOp, keeps_input: bool) -> Result<Activation> {
        let made = forward(&op, self.numbers(), self.dims())?;
        Tape::note(&[&self], made, |y| applied(op, &self, keeps_input, y))
    }
}

/// The result of `op` without an input, with which a tape begins.
pub(super) fn begun<O: TensorOp>(tape: Option<&Tape>, op: O) -> Result<Activation> {
    let (numbers, shape) = forward(&op, &[], &[0])?;
    match tape {
        None => Activation::new(numbers, shape),
        Some(tape) => {
            let nothing = Activation::new(Vec::new(), 0)?;
            Ok(tape.noted(Vec::new(), (numbers, shape), |y| applied(op, &nothing, false, y)))
        }
    }
}

fn forward<O: TensorOp>(op: &O, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
    let made = profile::forward(O::NAME, || op.forward(x, dims))?;
    in_large_pages(&made.0);
    Ok(made)
}

fn applied<O: TensorOp>(op: O, x: &Activation, keeps: bool, y: &Floats) -> Arc<dyn Operation> {
    Arc::new(Applied {
        op,
        x: if keeps { x.numbers.clone() } else { Floats::default() },
        dims: x.dims().to_vec(),
        y: if O::READS_RESULT { y.clone() } else { Floats::default() },
    })
}

/// An operation of one input, and what its backward pass reads.
struct Applied<O> {
    op: O,
    x: Floats,
    dims: Vec<usize>,
    y: Floats,
}

impl<O: TensorOp> Operation for Applied<O> {
    fn input_gradients(&self, dy: &Floats, _: &mut Option<&mut Deferred>) -> Result<Vec<Floats>> {
        let dx = profile::backward(O::NAME, || {
            self.op.gradient_beside(&self.x, &self.dims, &self.y, dy)
        })?;
        Ok(vec![Arc::new(dx)])
    }

    fn has_weights(&self) -> bool {
        O::HAS_WEIGHTS
    }

    fn weight_gradients(&self, dy: &[f32]) -> Result<()> {
        profile::backward(O::NAME, || self.op.weight_gradients(&self.x, &self.dims, dy))
    }
}

/// Calls `read` with a tensor's f32 elements, row-major.
///
/// # Errors
/// If the tensor is not f32 on the CPU, or `read` fails.
pub fn read<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> Result<R>) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => read(elements(storage, layout)?),
        _ => bail!("this operation runs on the CPU"),
    }
}

/// The f32 elements of an operation's argument, which must be contiguous in memory.
fn elements<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(data), Some((start, end))) => Ok(&data[start..end]),
        (CpuStorage::F32(_), None) => bail!("this operation takes contiguous tensors"),
        (other, _) => bail!("this operation takes f32 tensors, not {:?}", other.dtype()),
    }
}

/// The number of rows in a shape, and their width, which is its last dimension.
///
/// # Errors
/// If there is no last dimension, or it is 0.
pub fn rows(dims: &[usize]) -> Result<(usize, usize)> {
    match dims {
        [outer @ .., width] if *width > 0 => Ok((outer.iter().product(), *width)),
        _ => bail!("this operation takes a tensor with at least one column, not {dims:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn rows_are_all_but_the_last_dimension_which_is_not_empty() {
        assert_eq!(rows(&[2, 3, 4]).unwrap(), (6, 4));
        assert_eq!(rows(&[4]).unwrap(), (1, 4));
        assert_eq!(rows(&[0, 4]).unwrap(), (0, 4));
        for none in [&[][..], &[0], &[3, 0]] {
            assert!(rows(none).is_err(), "{none:?}");
        }
    }
}
