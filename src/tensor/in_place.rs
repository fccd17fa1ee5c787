//! What changes a tensor in its own memory. candle keeps the tensors of its graph until the end of
//! the backward pass, also those that nothing reads any more.

use super::stored::add;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, Tensor, bail};
use std::sync::{Mutex, PoisonError};

/// The f32 elements of an operation's argument, which must be contiguous in memory.
pub(super) fn elements<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(data), Some((_, end))) if end > data.len() => {
            bail!("this tensor has no elements any more: a later operation has freed them")
        }
        (CpuStorage::F32(data), Some((start, end))) => Ok(&data[start..end]),
        (CpuStorage::F32(_), None) => {
            bail!("this operation takes contiguous tensors: call .contiguous() before it")
        }
        (other, _) => bail!("this operation takes f32 tensors, not {:?}", other.dtype()),
    }
}

/// Frees the memory of a tensor that a backward pass does not read. Its shape stays, because
/// candle's backward pass reads it.
pub(super) fn free(x: &Tensor) -> Result<()> {
    take(x).map(drop)
}

/// Moves a tensor's elements out of it. Its shape stays.
pub(super) fn take(x: &Tensor) -> Result<CpuStorage> {
    let elements = Mutex::new(CpuStorage::F32(Vec::new()));
    x.inplace_op1(&Take(&elements))?;
    Ok(elements.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Changes places with the elements of a tensor.
struct Take<'a>(&'a Mutex<CpuStorage>);

impl InplaceOp1 for Take<'_> {
    fn name(&self) -> &'static str {
        "take"
    }

    fn cpu_fwd(&self, x: &mut CpuStorage, _layout: &Layout) -> Result<()> {
        std::mem::swap(x, &mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

/// Adds `x` to `y`.
///
/// # Errors
/// If they do not have one shape, or are not contiguous f32.
pub(super) fn add_to(y: &Tensor, x: &Tensor) -> Result<()> {
    if y.shape() != x.shape() {
        bail!("{:?} cannot be added to {:?}", x.shape(), y.shape());
    }
    y.inplace_op2(x, &AddTo)
}

struct AddTo;

impl InplaceOp2 for AddTo {
    fn name(&self) -> &'static str {
        "add to"
    }

    fn cpu_fwd(
        &self,
        y: &mut CpuStorage,
        layout: &Layout,
        x: &CpuStorage,
        x_layout: &Layout,
    ) -> Result<()> {
        let x = elements(x, x_layout)?;
        match (y, layout.contiguous_offsets()) {
            (CpuStorage::F32(y), Some((start, end))) if end <= y.len() => {
                add(&mut y[start..end], x)
            }
            _ => bail!("a sum takes contiguous f32 tensors"),
        }
        Ok(())
    }
}
