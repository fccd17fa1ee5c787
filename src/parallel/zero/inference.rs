//! Stage 3 without training: parameters are sharded, and neither gradients nor an optimizer exist.

use super::gather::Gatherer;
use super::units::{Units, Wrap};
use crate::comm::Comm;
use crate::optim::{InitialValues, initial_store};
use crate::tensor::{Params, Precision, ShardedValues, Spec, Storage, Stored};
use anyhow::Result;
use half::bf16;
use std::ops::Range;
use std::sync::Arc;

/// A model that only generates or is evaluated, whose parameters are sharded among ranks. Each pass
/// gathers unit after unit.
pub struct ZeroInference {
    params: Arc<Params>,
    shards: Arc<dyn Shards>,
}

/// Bytes of parameters that a rank holds while it only makes forward passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferenceBytes {
    /// Of this rank's shards.
    pub shards: usize,
    /// Of the gathered units, at their peak.
    pub peak_gathered: usize,
}

/// This rank's shards, of any type.
trait Shards: ShardedValues {
    fn open(&self) -> Result<()>;
    fn close(&self);
    fn bytes(&self) -> InferenceBytes;
}

struct Values<T>(Gatherer<T>);

impl<T: Stored> ShardedValues for Values<T> {
    fn value(&self, spec: &Spec) -> candle_core::Result<(Arc<Vec<f32>>, Range<usize>)> {
        self.0.value(spec)
    }
}

impl<T: Stored> Shards for Values<T> {
    fn open(&self) -> Result<()> {
        self.0.open(false)
    }

    fn close(&self) {
        self.0.close();
    }

    fn bytes(&self) -> InferenceBytes {
        let (_, peak_gathered) = self.0.bytes();
        InferenceBytes { shards: self.0.shard_bytes().memory, peak_gathered }
    }
}

impl ZeroInference {
    /// Shards parameters that are only declared. `begin` writes the values of each rank's own
    /// shard.
    ///
    /// # Errors
    /// If this rank's shard cannot be allocated.
    pub fn new(
        params: &Arc<Params>,
        comm: &Comm,
        wrap: Wrap,
        precision: Precision,
        begin: InitialValues,
    ) -> Result<ZeroInference> {
        let units = Arc::new(Units::new(params.specs(), comm.size(), wrap, THRESHOLD));
        match precision {
            Precision::F32 => ZeroInference::typed::<f32>(params, comm, units, begin),
            Precision::Bf16 => ZeroInference::typed::<bf16>(params, comm, units, begin),
        }
    }

    fn typed<T: Stored>(
        params: &Arc<Params>,
        comm: &Comm,
        units: Arc<Units>,
        begin: InitialValues,
    ) -> Result<ZeroInference> {
        let values = initial_store::<T>(&units.fragments(comm.rank()), begin, None)?;
        let shards = Arc::new(Values(Gatherer::new(comm, units, values, 0)));
        params.set_values(Storage::Sharded(shards.clone()));
        Ok(ZeroInference { params: params.clone(), shards })
    }

    /// Runs `work`, which makes forward passes. All ranks call it, and make the same number of
    /// passes.
    ///
    /// # Errors
    /// If parameters cannot be gathered, and those of `work`.
    pub fn passes<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.shards.open()?;
        let result = work();
        self.shards.close();
        result
    }

    /// Bytes of the parameters.
    pub fn bytes(&self) -> InferenceBytes {
        self.shards.bytes()
    }
}

/// Parameters of up to this many elements, such as gains, stay whole during all passes.
const THRESHOLD: usize = 10_000;

impl Drop for ZeroInference {
    fn drop(&mut self) {
        self.params.forget_shards();
    }
}
