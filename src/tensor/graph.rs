//! Connects candle's graph with loops over slices.

use super::chain;
use super::defer::now_or_later;
use super::in_place::{elements, free};
use super::profile;
use crate::memory::in_large_pages;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor, bail};
use std::sync::Arc;

/// A function of one f32 tensor with its own backward pass, over slices. Weights are not tensors
/// here. An operation holds handles on them, reads them in both passes, and adds their gradients
/// through the handles.
pub trait TensorOp: Send + Sync + 'static {
    const NAME: &'static str;
    /// Whether the operation has weights. Without any,
    /// [`weight_gradients`](TensorOp::weight_gradients) is not called.
    const HAS_WEIGHTS: bool = false;

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
    /// its result `y`. The next operation must keep it, as a linear layer does.
    ///
    /// # Errors
    /// As [`input_gradient`](TensorOp::input_gradient).
    fn gradient_beside(
        &self,
        x: &[f32],
        dims: &[usize],
        _y: &Tensor,
        dy: &[f32],
    ) -> Result<Vec<f32>> {
        self.input_gradient(x, dims, dy)
    }

    /// Adds the weights' gradients through their handles. No operation waits for them, so they may
    /// be computed later: see [`defer`](super::defer()).
    ///
    /// # Errors
    /// As [`Param::add_gradient`](super::Param::add_gradient).
    fn weight_gradients(&self, _x: &[f32], _dims: &[usize], _dy: &[f32]) -> Result<()> {
        Ok(())
    }
}

/// Applies `op` to `x`, as a node of candle's graph if `x` depends on a variable.
///
/// # Errors
/// If `x` is not contiguous f32 on the CPU, or the operation fails.
pub fn apply(x: &Tensor, op: impl TensorOp) -> Result<Tensor> {
    Node { op: Arc::new(op), keeps_input: true }.apply(x)
}

/// [`apply`] for an operation whose backward pass does not read `x`: the pass gets an empty slice.
/// candle keeps the inputs of all operations for the backward pass, but this function frees the
/// memory of `x`.
///
/// # Errors
/// As [`apply`].
pub fn consume(x: Tensor, op: impl TensorOp) -> Result<Tensor> {
    let y = Node { op: Arc::new(op), keeps_input: false }.apply(&x)?;
    free(&x)?;
    Ok(y)
}

struct Node<O> {
    op: Arc<O>,
    keeps_input: bool,
}

impl<O: TensorOp> Node<O> {
    fn apply(self, x: &Tensor) -> Result<Tensor> {
        let y = x.apply_op1(Node { op: self.op.clone(), ..self })?;
        chain::link(x, &y, self);
        Ok(y)
    }
}

impl<O: TensorOp> CustomOp1 for Node<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = elements(x, layout)?;
        let (y, shape) = profile::forward(O::NAME, || self.op.forward(x, layout.dims()))?;
        in_large_pages(&y);
        Ok((CpuStorage::F32(y), shape))
    }

    fn bwd(&self, x: &Tensor, y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let op = self.op.clone();
        let keeps_input = self.keeps_input;
        let dx =
            backward::<O, _>(keeps_input, x, dy, |x_, dy| op.gradient_beside(x_, x.dims(), y, dy))?;
        if O::HAS_WEIGHTS {
            let x = x.clone();
            let dy = dy.clone();
            now_or_later(move || {
                backward::<O, _>(keeps_input, &x, &dy, |x_, dy| {
                    op.weight_gradients(x_, x.dims(), dy)
                })
            })?;
        }
        Tensor::from_vec(dx, x.shape(), x.device()).map(Some)
    }
}

/// Runs one half of a backward pass. `half` gets the elements of the input, if they were kept, and
/// of the result's gradient.
fn backward<O: TensorOp, R>(
    keeps_input: bool,
    x: &Tensor,
    dy: &Tensor,
    half: impl FnOnce(&[f32], &[f32]) -> Result<R>,
) -> Result<R> {
    let timed = |x: &[f32]| read(dy, |dy| profile::backward(O::NAME, || half(x, dy)));
    if keeps_input { read(x, timed) } else { timed(&[]) }
}

/// Calls `read` with a tensor's f32 elements, row-major.
///
/// # Errors
/// If the tensor is not f32 on the CPU, or `read` fails.
pub fn read<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> Result<R>) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    read(elements(on_cpu(&storage)?, layout)?)
}

fn on_cpu(storage: &Storage) -> Result<&CpuStorage> {
    match storage {
        Storage::Cpu(storage) => Ok(storage),
        _ => bail!("this operation runs on the CPU"),
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
