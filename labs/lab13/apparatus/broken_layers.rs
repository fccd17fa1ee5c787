//! Layers with a mistake in them.

use super::broken::Break;
use super::broken_delivery::BrokenDelivery;
use super::broken_router::BiasedWeights;
use shardlab::comm::Comm;
use shardlab::model::{Build, Deliver, Entry, Exit, Layer, Mixture, Role};
use shardlab::parallel::TensorParallel;
use shardlab::tensor::{Copies, Param, Params, Whole};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

type Result<T> = candle_core::Result<T>;

/// The layers with the mistake in them, if it is one of layers. `world` shares the experts;
/// `counted` gets the copies that a layer counts for itself.
pub fn layers(
    broken: Break,
    tensor: &TensorParallel,
    world: &Comm,
    counted: &Arc<AtomicU64>,
) -> Box<dyn Build> {
    let delivery = |right| BrokenDelivery {
        broken,
        right,
        group: world.clone().named("experts"),
        counted: counted.clone(),
    };
    Box::new(BrokenLayers {
        broken,
        tensor: tensor.clone(),
        delivery: tensor.delivery().map(|right| Arc::new(delivery(right)) as _),
    })
}

/// The builder of a model whose experts are reached in another way, or whose routers are parts.
struct BrokenLayers {
    broken: Break,
    tensor: TensorParallel,
    delivery: Option<Arc<dyn Deliver>>,
}

impl Build for BrokenLayers {
    fn gain(&self, params: &Arc<Params>, whole: Whole) -> Result<Param> {
        // Then it counts as an expert: each rank keeps the gradient of its own tokens.
        let expert = self.broken == Break::RouterParts && whole.name.contains("router");
        self.tensor.gain(params, Whole { expert, ..whole })
    }

    fn mixture(&self, mixture: Mixture) -> Box<dyn Layer> {
        match self.broken {
            Break::BiasedWeights => Box::new(BiasedWeights(mixture)),
            _ => self.tensor.mixture(mixture),
        }
    }

    fn delivery(&self) -> Option<Arc<dyn Deliver>> {
        self.delivery.clone()
    }

    fn experts(&self, all: usize) -> Range<usize> {
        self.tensor.experts(all)
    }

    fn linear(&self, params: &Arc<Params>, whole: Whole, role: Role) -> Result<Box<dyn Layer>> {
        self.tensor.linear(params, whole, role)
    }

    fn table(&self, params: &Arc<Params>, whole: Whole, copies: Copies) -> Result<Param> {
        self.tensor.table(params, whole, copies)
    }

    fn entry(
        &self,
        params: &Arc<Params>,
        tokens: Param,
        positions: Option<Whole>,
    ) -> Result<Box<dyn Entry>> {
        self.tensor.entry(params, tokens, positions)
    }

    fn exit(&self, tokens: Param) -> Box<dyn Exit> {
        self.tensor.exit(tokens)
    }

    fn heads(&self, all: usize) -> Range<usize> {
        self.tensor.heads(all)
    }
}
