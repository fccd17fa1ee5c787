//! The few lines between candle's tensors and loops over slices.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout, Result, Storage, Tensor, bail};

/// The f32 elements of an operation's argument, which must lie next to each other in memory.
pub(crate) fn elements<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
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

/// A new tensor of `like`'s shape.
pub(crate) fn tensor_like(like: &Tensor, data: Vec<f32>) -> Result<Tensor> {
    Tensor::from_vec(data, like.shape(), like.device())
}

/// The length of a shape's last dimension and the number of such rows.
pub(crate) fn rows(layout: &Layout) -> Result<(usize, usize)> {
    match layout.dims().last() {
        Some(&width) if width > 0 => Ok((layout.shape().elem_count() / width, width)),
        _ => bail!("this operation takes a tensor with at least one column, not {:?}", layout.shape()),
    }
}
