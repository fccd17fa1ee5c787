//! What a run's ranks share.

use super::job::Job;
use crate::flags::Args;
use kit::LabRun;
use kit::flags::EvalConfig;
use shardlab::data::Corpus;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::Config;

/// The run's settings, which all ranks share.
pub struct Lab {
    pub args: Args,
    pub config: Config,
    pub strategy: Strategy,
    pub job: Job,
    /// The settings of the first stage; the others differ only in their number.
    pub zero: ZeroConfig,
    pub tiles: usize,
    /// Only with one stage, which is trained in full.
    pub eval: Option<EvalConfig>,
    pub corpus: Corpus,
    /// The stages to train.
    pub stages: Vec<Stage>,
    pub run: LabRun,
    /// One thread's matmul peak, FLOP/s; 0 if no figure needs it.
    pub peak: f64,
}
