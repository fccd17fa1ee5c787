//! What surrounds the lesson: a spike in the loss, and what a run does about it.
//!
//! Reading order: `poison.rs` (bad batches), `metrics.rs` and `spikes.rs` (a run's metrics file,
//! and the spikes in it), `training.rs` (one training, which can begin at a checkpoint),
//! `counts.rs` (what it drew and trained on), `policies.rs` (ways to skip, side by side),
//! `iterations.rs` (the log's lines, as Megatron writes them), `once.rs` (one training with its
//! log), `restart.rs` and `progress.rs` (one training that outlives a kill),
//! `stall.rs` (for how long a save stops a training), `scaling.rs` (one training in fp16).

mod counts;
mod iterations;
mod metrics;
mod once;
mod poison;
mod policies;
mod progress;
mod restart;
mod scaling;
pub mod spikes;
mod stall;
mod training;

pub use counts::{Counts, counts};
pub use metrics::{METRICS, Metrics};
pub use once::{once, report_no_spike};
pub use poison::Poison;
pub use policies::{compared, overlaid};
pub use restart::restart;
pub use scaling::scaling;
pub use stall::{larger, stall};
pub use training::{Run, Training, Way, checkpoints};

use crate::flags::SurviveFlags;
use crate::skipping::{Ranges, emulate_half};
use anyhow::Result;
use kit::show::Screen;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Setup};
use std::path::PathBuf;

/// The run's settings, which all ranks share.
pub struct Job {
    pub flags: SurviveFlags,
    pub config: Config,
    pub strategy: Strategy,
    pub poison: Poison,
    /// Steps to skip.
    pub ranges: Ranges,
    pub corpus: Corpus,
    pub screen: Screen,
    /// For the run's files.
    pub folder: PathBuf,
}

impl Job {
    /// A training at its start. All ranks call it.
    pub fn begin(&self, comm: &Comm) -> Result<shardlab::train::Training> {
        shardlab::train::Training::new(&self.config, &self.strategy, comm)
    }

    /// A training at its start whose gradients are rounded to fp16. All ranks call it.
    pub fn begin_in_half(&self, comm: &Comm) -> Result<shardlab::train::Training> {
        Setup::new(&self.config, &self.strategy).listen(emulate_half).begin(comm)
    }
}
