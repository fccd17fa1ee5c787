//! Stage 3 without training: parameters are sharded, and neither gradients nor an optimizer exist.

use anyhow::Result;
use half::bf16;
use shardlab::comm::Comm;
use shardlab::optim::InitialValues;
use shardlab::parallel::zero::{Gatherer, Wrap};
use shardlab::tensor::{Params, Precision, Storage, Stored};
use std::sync::Arc;

/// A model that only generates or is evaluated, whose parameters are sharded among ranks. Each pass
/// gathers unit after unit.
pub struct ZeroInference {
    params: Arc<Params>,
    shards: Arc<dyn Shards>,
}

/// This rank's shards, of any type.
trait Shards {
    fn open(&self) -> Result<()>;
    fn close(&self);
    fn bytes(&self) -> usize;
}

impl<T: Stored> Shards for Gatherer<T> {
    fn open(&self) -> Result<()> {
        Gatherer::open(self, false)
    }

    fn close(&self) {
        Gatherer::close(self);
    }

    fn bytes(&self) -> usize {
        self.shard_bytes().memory
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
        match precision {
            Precision::F32 => ZeroInference::typed::<f32>(params, comm, wrap, begin),
            Precision::Bf16 => ZeroInference::typed::<bf16>(params, comm, wrap, begin),
        }
    }

    fn typed<T: Stored>(
        params: &Arc<Params>,
        comm: &Comm,
        wrap: Wrap,
        begin: InitialValues,
    ) -> Result<ZeroInference> {
        let shards = Gatherer::<T>::begin_with(params, comm, wrap, THRESHOLD, begin)?;
        let shards = Arc::new(shards);
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

    /// Bytes of this rank's shards.
    pub fn bytes(&self) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::launch;
    use shardlab::model::{Llama, Pass};
    use shardlab::tensor::Spec;

    /// What a pass of a model needs is the shards', so a model whose shards have gone has no
    /// values.
    #[test]
    fn a_model_that_only_generates_lets_its_shards_go() {
        let shape = shapes::llamas::named("stories260k").unwrap();
        launch::run(2, |comm| {
            let llama = Llama::new(&shape)?;
            let ones = |_: &Spec, _, out: &mut [f32]| out.fill(1.0);
            let shards =
                ZeroInference::new(&llama.params, &comm, Wrap::Blocks, Precision::F32, &ones)?;
            let logits = || llama.logits(&[1, 2], 2, &Pass::evaluate());
            shards.passes(|| Ok(logits()?))?;
            drop(shards);
            let error = logits().unwrap_err();
            assert!(error.to_string().contains("has no values yet"), "{error}");
            Ok(())
        })
        .unwrap();
    }
}
