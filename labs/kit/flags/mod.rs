//! The flags of training labs, in groups. A lab flattens the groups that it supports, and clap refuses all other flags.
//!
//! Reading order: `model.rs`, `data.rs` and `optim.rs` define a step; [`TrainFlags`] makes a [`Config`] of the three.
//! `zero.rs` chooses the state that ranks shard. `eval.rs`, `log.rs` and `run.rs` choose a run's screens and files.

mod comm;
mod data;
mod eval;
mod log;
mod model;
mod optim;
mod run;
mod zero;

pub use comm::CommFlags;
pub use data::DataFlags;
pub use eval::EvalFlags;
pub use log::LogFlags;
pub use model::ModelFlags;
pub use optim::OptimFlags;
pub use run::RunFlags;
pub use zero::{Fsdp, ZeroFlags};

use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::train::{Config, Defaults};
use std::ops::RangeInclusive;

/// The flags that define a training step, in every lab that trains a GPT. A given flag overrides the preset, in any
/// order.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainFlags {
    #[command(flatten)]
    pub model: ModelFlags,
    #[command(flatten)]
    pub data: DataFlags,
    #[command(flatten)]
    pub optim: OptimFlags,
    /// Random seed of weights, batches, dropout and samples
    #[arg(long, default_value_t = 1337)]
    pub seed: u64,
}

impl TrainFlags {
    /// Checks the flags against each other and the text, before allocating memory. `ranks` is the result of
    /// [`launch::ranks`](shardlab::launch::ranks). `steps` overrides the preset's.
    pub fn resolve(
        &self,
        ranks: usize,
        steps: Option<usize>,
        corpus: &Corpus,
    ) -> Result<Config, BadInput> {
        let defaults = self.defaults();
        let shape = self.model.resolve(&defaults, corpus)?;
        let batch = self.data.batch(ranks)?.unwrap_or(defaults.batch);
        let steps = steps.unwrap_or(defaults.steps);
        in_range("steps", steps, ANY)?;
        let (schedule, adamw, clip) = self.optim.resolve(&defaults, steps)?;
        let config = Config {
            ranks,
            shape,
            batch,
            grad_accum: self.data.grad_accum,
            sampling: self.data.sampler,
            steps,
            schedule,
            adamw,
            clip,
            dropout: self.model.dropout,
            seed: self.seed,
        };
        data::ensure_text_is_long_enough(&config, corpus)?;
        Ok(config)
    }

    /// The preset's settings.
    pub fn defaults(&self) -> Defaults {
        self.model.preset.defaults()
    }
}

/// Limits far above any real model, and low enough that no figure about a run overflows.
const SIZES: RangeInclusive<usize> = 1..=1 << 16;
pub const COUNTS: RangeInclusive<usize> = 1..=1 << 20;
const ANY: RangeInclusive<usize> = 1..=usize::MAX;

/// Refuses numbers outside of `range`.
pub fn in_range(flag: &str, value: usize, range: RangeInclusive<usize>) -> Result<(), BadInput> {
    if range.contains(&value) {
        return Ok(());
    }
    let upto = if *range.end() == usize::MAX {
        " on".to_string()
    } else {
        format!(" to {}", range.end())
    };
    let help = format!("give a whole number from {}{upto}", range.start());
    Err(BadInput::new(
        format!("--{flag} {value} is out of range"),
        help,
    ))
}

/// Refuses a number that is not `sound`. `rule` describes the sound numbers.
pub fn ensure(flag: &str, value: f64, sound: bool, rule: &str) -> Result<(), BadInput> {
    if sound {
        return Ok(());
    }
    Err(BadInput::new(
        format!("--{flag} {value} is out of range"),
        format!("give {rule}"),
    ))
}

/// Whether a fraction is at least 0 and below 1.
fn is_below_one(x: f64) -> bool {
    (0.0..1.0).contains(&x)
}

fn is_not_negative(x: f64) -> bool {
    x >= 0.0 && x.is_finite()
}
