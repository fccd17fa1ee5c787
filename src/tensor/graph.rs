//! The few lines between candle's graph and loops over slices.

use super::profile;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor, bail};

/// A function of one f32 tensor with a backward pass of its own, over slices. Weights are no tensors here: an operation
/// holds handles on them, reads them in both passes, and adds their gradients where they live.
pub(crate) trait Op: Send + Sync + 'static {
    const NAME: &'static str;

    /// The result and its shape, for `x` of shape `dims`, row-major.
    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)>;

    /// The gradient of `x`, given `dy`, the gradient of the result.
    fn backward(&self, x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>>;
}

/// `op` of `x`, as a node of candle's graph if `x` hangs on a variable.
pub(crate) fn apply(x: &Tensor, op: impl Op) -> Result<Tensor> {
    x.apply_op1(Node(op))
}

struct Node<O>(O);

impl<O: Op> CustomOp1 for Node<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = elements(x, layout)?;
        let (y, shape) = profile::forward(O::NAME, || self.0.forward(x, layout.dims()))?;
        Ok((CpuStorage::F32(y), shape))
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let dx = read(x, |x_| read(dy, |dy| profile::backward(O::NAME, || self.0.backward(x_, x.dims(), dy))))?;
        Tensor::from_vec(dx, x.shape(), x.device()).map(Some)
    }
}

/// The f32 elements of an operation's argument, which must lie next to each other in memory.
fn elements<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(data), Some((start, end))) => Ok(&data[start..end]),
        (CpuStorage::F32(_), None) => bail!("this operation takes contiguous tensors: call .contiguous() before it"),
        (other, _) => bail!("this operation takes f32 tensors, not {:?}", other.dtype()),
    }
}

/// Calls `read` with a tensor's f32 elements, row-major.
pub fn read<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> Result<R>) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => read(elements(storage, layout)?),
        _ => bail!("this operation runs on the CPU"),
    }
}

/// The number of rows that a shape's elements make, and their width: its last dimension.
pub(crate) fn rows(dims: &[usize]) -> Result<(usize, usize)> {
    match dims {
        [outer @ .., width] if *width > 0 => Ok((outer.iter().product(), *width)),
        _ => bail!("this operation takes a tensor with at least one column, not {dims:?}"),
    }
}
