//! Short trainings of this library's GPT, and the planner's figures for them.

use super::strategy::{Cluster, Overlap, Program, Recompute, Strategy, TrainingJob};
use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::mesh::{Coordinates, Layout, Mesh, Order};
use shardlab::parallel::ZeroConfig;
use shardlab::parallel::pipeline::{Partition, Pipeline, Schedule};
use shardlab::parallel::zero::Stage;
use shardlab::plan::{BytesEach, ModelShape};
use shardlab::tensor::Precision;
use shardlab::train::{Config, PipelinePlan, Pipelined};
use std::time::Instant;

/// A training of this library's GPT.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    pub shape: ModelShape,
    pub dropout: f64,
    /// Sequences per step, over all ranks.
    pub batch: usize,
    pub strategy: Strategy,
}

/// Bytes of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Weights, gradients and the optimizer's state.
    pub state: f64,
    /// Activations, when they are most. With ZeRO-3 also the layers that are gathered then.
    pub activations: f64,
}

/// The measurements of a training.
pub struct Trained {
    /// Seconds of the fastest step, on the slowest rank. Programs in the background only ever delay
    /// a step.
    pub seconds: f64,
    /// Bytes of each rank, with the number of its pipeline stage.
    pub held: Vec<(usize, Held)>,
}

impl Training {
    /// The planner's job on a cluster.
    pub fn job(&self, cluster: &Cluster) -> TrainingJob {
        let job = TrainingJob::new(self.shape, cluster.clone(), self.strategy.devices());
        TrainingJob {
            batch: self.batch,
            bytes: BytesEach::F32,
            dropout: self.dropout > 0.0,
            overlap: Overlap::None,
            program: Program::Shardlab,
            rings: true,
            ..job
        }
    }

    /// The planner's bytes for a rank of a pipeline stage.
    pub fn planned(&self, job: &TrainingJob, stage: usize) -> Held {
        let load = job.load_of(&self.strategy, stage);
        // Between two passes: the layer that was used last and the next one, and no gradients in
        // flight.
        let layers = if self.strategy.zero == 3 { 2.0 } else { 0.0 };
        let gathered = layers * (job.bytes.parameter as f64) * job.model.largest_layer() as f64
            / self.strategy.tensor as f64;
        Held {
            state: load.state(),
            activations: load.activations + gathered,
        }
    }

    /// Trains for some steps. `copies` trainings run at the same time, and know nothing of each
    /// other.
    pub fn run(&self, corpus: &Corpus, steps: usize, copies: usize) -> Result<Trained> {
        let s = self.strategy;
        let micro_batches = s.micro_batches(self.batch);
        let config = Config {
            shape: self.shape,
            batch: s.micro_batch,
            grad_accum: micro_batches,
            steps,
            dropout: self.dropout,
            ..Config::small(s.data, corpus)
        };
        let pipeline = Pipeline { ranks: s.pipeline, chunks: s.chunks, micro_batches };
        let schedule = match s.chunks {
            1 => Schedule::OneForwardOneBackward,
            _ => Schedule::depth_first(&pipeline),
        };
        let recompute = usize::from(s.recompute == Recompute::Full);
        let plan = PipelinePlan { pipeline, schedule, partition: Partition::Uniform, recompute };
        plan.check(&config)?;
        let sizes = Coordinates { data: s.data, pipeline: s.pipeline, tensor: s.tensor };
        let train = |all: Comm| {
            let comm = all.split((all.rank() / s.devices()) as u64, 0)?;
            let mesh = Mesh::new(&comm, Layout { sizes, order: Order::default() })?;
            let zero = ZeroConfig::new(Stage::ALL[s.zero], Precision::F32, config.adamw);
            let mut part = Pipelined::new(&config, &mesh, &plan, (s.sequence, 1), zero)?;
            let mut seconds = f64::INFINITY;
            let mut activations = 0;
            for step in 0..steps {
                comm.barrier()?;
                let start = Instant::now();
                let ran = part.step(&corpus.train, step)?.ran;
                comm.barrier()?;
                seconds = seconds.min(start.elapsed().as_secs_f64());
                // The last step counts: the first one also leaves buffers that are not a step's.
                activations = ran.passes.iter().map(|pass| pass.bytes).max().unwrap_or(0);
            }
            let memory = part.zero.memory();
            let state = (memory.parameters + memory.gradients + memory.optimizer) as f64;
            Ok((seconds, (mesh.at.pipeline, Held { state, activations: activations as f64 })))
        };
        let (seconds, held): (Vec<f64>, _) =
            launch::run(s.devices() * copies, train)?.into_iter().unzip();
        Ok(Trained { seconds: seconds.into_iter().fold(0.0, f64::max), held })
    }
}
