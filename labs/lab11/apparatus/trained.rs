//! Short trainings of this library's GPT, and the planner's figures for them.

use super::strategy::{Cluster, Degrees, Overlap, Program, Strategy, TrainingJob};
use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{BytesEach, ModelShape};
use shardlab::train::{self, Config};
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
        let job = TrainingJob::new(self.shape, cluster.clone(), self.strategy.ranks());
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
        let layers = if self.strategy.zero == Stage::Three { 2.0 } else { 0.0 };
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
        let micro_batches = Some(self.strategy.micro_batches_of(self.batch));
        let strategy = Strategy { micro_batches, ..self.strategy };
        let config = Config {
            shape: self.shape,
            steps,
            dropout: self.dropout,
            ..Config::small(strategy.data, corpus)
        };
        let config = config.under(&strategy);
        let train = |all: Comm| {
            let comm = all.split((all.rank() / strategy.ranks()) as u64, 0)?;
            let mut training = train::Training::new(&config, &strategy, &comm)?;
            let mut seconds = f64::INFINITY;
            let mut activations = 0;
            for step in 0..steps {
                comm.barrier()?;
                let start = Instant::now();
                let ran = training.step(&corpus.train, step)?.ran;
                comm.barrier()?;
                seconds = seconds.min(start.elapsed().as_secs_f64());
                // The last step counts: the first one also leaves buffers that are not a step's.
                activations = ran.passes.iter().map(|pass| pass.bytes).max().unwrap_or(0);
            }
            let memory = training.zero.memory();
            let state = (memory.parameters + memory.gradients + memory.optimizer) as f64;
            let held = Held { state, activations: activations as f64 };
            Ok((seconds, (training.mesh.at.pipeline, held)))
        };
        let (seconds, held): (Vec<f64>, _) =
            launch::run(strategy.ranks() * copies, train)?.into_iter().unzip();
        Ok(Trained { seconds: seconds.into_iter().fold(0.0, f64::max), held })
    }
}
