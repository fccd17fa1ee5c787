//! Where values and gradients are stored, and the two ways to those that ranks shard.

use super::Spec;
use crate::tensor::Numbers;
use candle_core::Result;
use half::bf16;
use std::ops::Range;
use std::sync::Arc;

/// Where a model's values or gradients are stored.
pub enum Storage<S: ?Sized> {
    /// Nowhere: the model is only declared.
    Unallocated,
    /// On this rank, in one flat buffer.
    Local(Numbers),
    /// Sharded among ranks.
    Sharded(Arc<S>),
}

impl<S: ?Sized> Storage<S> {
    /// Bytes of what is stored on this rank.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Storage::Local(Numbers::F32(all)) => size_of::<f32>() * all.capacity(),
            Storage::Local(Numbers::Bf16(all)) => size_of::<bf16>() * all.capacity(),
            Storage::Unallocated | Storage::Sharded(_) => 0,
        }
    }

    /// Sets some numbers to zero, if they are on this rank.
    pub(super) fn zero(&mut self, elements: Range<usize>) {
        match self {
            Storage::Local(Numbers::F32(all)) => all[elements].fill(0.0),
            Storage::Local(Numbers::Bf16(all)) => all[elements].fill(bf16::ZERO),
            Storage::Unallocated | Storage::Sharded(_) => {}
        }
    }

    pub(super) fn forget_shards(&mut self) {
        if matches!(self, Storage::Sharded(_)) {
            *self = Storage::Unallocated;
        }
    }
}

/// Supplies values that are sharded among ranks.
pub trait ShardedValues: Send + Sync {
    /// The value of a parameter that a layer is about to use, as a range of a vector.
    ///
    /// # Errors
    /// If the ranks that hold the value cannot be reached.
    fn value(&self, spec: &Spec) -> Result<(Arc<Vec<f32>>, Range<usize>)>;
}

/// Takes in gradients that are sharded among ranks.
pub trait ShardedGradients: Send + Sync {
    /// Calls `add` once with the memory of a parameter's gradient; `add` adds a contribution to it.
    ///
    /// # Errors
    /// If `add`'s memory cannot be had: a rank has ended with which this one shards gradients.
    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> Result<()>;
}
