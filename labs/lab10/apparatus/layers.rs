//! One rank's layers of a Llama that generates, as a library's settings divide it.

use super::config::DsConfig;
use anyhow::Result;
use shardlab::mesh::{Axis, Mesh};
use shardlab::model::{Build, Llama, Plain};
use shardlab::parallel::TensorParallel;
use shardlab::parallel::pipeline::{Pipeline, Stages};
use shardlab::plan::ModelShape;
use shardlab::tensor::KvCache;
use std::ops::Range;
use std::sync::Arc;

/// One rank's layers: those of its stage, cut among the tensor ranks.
pub struct Layers {
    pub stages: Stages<Llama>,
    pub tensor: TensorParallel,
}

impl Layers {
    /// Declares the layers of the rank that is `mesh.at`.
    pub fn declare(shape: &ModelShape, config: &DsConfig, mesh: &Mesh) -> Result<Layers> {
        let group = mesh.group(Axis::Pipeline);
        let tensor = TensorParallel::new(mesh.group(Axis::Tensor).clone());
        let pipeline = Pipeline {
            ranks: group.size(),
            chunks: 1,
            micro_batches: config.accumulation,
        };
        let declare = |layers: &[Range<usize>]| Ok(Llama::chunks(shape, layers, builder(&tensor))?);
        let stages = Stages::of(pipeline, group, &config.layers(shape)?, declare)?;
        Ok(Layers { stages, tensor })
    }

    pub fn model(&self) -> &Llama {
        &self.stages.chunks[0]
    }

    /// An empty cache for one sequence of up to `capacity` tokens.
    pub fn cache(&self, capacity: usize) -> Arc<KvCache> {
        self.model().cache(1, capacity, builder(&self.tensor))
    }
}

pub(super) fn builder(tensor: &TensorParallel) -> &dyn Build {
    if tensor.group().size() > 1 { tensor } else { &Plain }
}
