//! Layers with a mistake in them.

use super::broken::Break;
use super::broken_dispatcher::BrokenDispatcher;
use super::broken_router::BiasedWeights;
use shardlab::comm::Comm;
use shardlab::model::{Build, Layer, Mixture};
use shardlab::parallel::TensorParallel;
use shardlab::plan::Part;
use shardlab::tensor::{Param, Params, Whole};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

type Result<T> = candle_core::Result<T>;

/// The builder of a model whose experts are reached in another way, or whose routers are parts: the
/// layers with the mistake in them, if it is one of layers.
pub struct BrokenLayers {
    pub broken: Break,
    pub tensor: TensorParallel,
    /// The ranks that share the experts.
    pub group: Comm,
    /// Gets the copies that a layer counts for itself.
    pub counted: Arc<AtomicU64>,
}

impl Build for BrokenLayers {
    fn around(&self) -> &dyn Build {
        &self.tensor
    }

    fn gain(&self, params: &Arc<Params>, mut whole: Whole) -> Result<Param> {
        // Then it counts as an expert: each rank keeps the gradient of its own tokens.
        if self.broken == Break::RouterParts && whole.name.contains("router") {
            whole.part = Part::Expert(0);
        }
        self.tensor.gain(params, whole)
    }

    fn mixture(&self, mut mixture: Mixture) -> Box<dyn Layer> {
        if self.broken == Break::BiasedWeights {
            return Box::new(BiasedWeights(mixture));
        }
        if let Some(right) = mixture.dispatcher.take() {
            mixture.dispatcher = Some(Arc::new(BrokenDispatcher {
                broken: self.broken,
                right,
                group: self.group.clone(),
                counted: self.counted.clone(),
            }));
        }
        self.tensor.mixture(mixture)
    }
}
