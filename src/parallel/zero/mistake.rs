//! Deliberate mistakes of labs. They are made here because only [`Zero`](super::Zero) knows all
//! groups that share gradients.

use crate::tensor::Stored;
use crate::tensor::stored::add;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a rank does wrong with sharded gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Each rank clips by its own shard's norm.
    LocalNorm,
    /// The norm's sum goes over all data ranks, so that each group's copy of a gradient counts in
    /// it (VeOmni pull request 862).
    NormOverAll,
    /// Only the last micro-batch's gradients are averaged between groups, and those of earlier ones
    /// added afterwards (PyTorch pull request 125484 says why not). In stage 3, without overlap.
    AccumulateLate,
}

/// [`Mistake::AccumulateLate`]: the shard's gradients of all micro-batches but the last.
pub(super) struct Early<T>(Mutex<Vec<T>>);

impl<T: Stored> Early<T> {
    pub fn new() -> Early<T> {
        Early(Mutex::new(Vec::new()))
    }

    /// Moves what has added up so far out of the way.
    pub fn set_aside(&self, shard: &mut [T]) {
        *self.lock() = shard.to_vec();
        shard.fill(T::zeroed());
    }

    /// Adds it to the last micro-batch's average.
    pub fn add_to(&self, shard: &mut [T]) {
        add(shard, &std::mem::take(&mut *self.lock()));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
