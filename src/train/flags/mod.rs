//! The flags of training labs, group by group. A lab flattens the groups that it heeds, and clap refuses all others.
//!
//! Reading order: `model.rs`, `data.rs` and `optim.rs` say what a step is, and [`TrainFlags`] makes a [`Config`] of the
//! three. `zero.rs` says what ranks divide. `eval.rs`, `log.rs` and `run.rs` say what a run shows and leaves behind.

mod data;
mod eval;
mod log;
mod model;
mod optim;
mod run;
mod zero;

pub use data::DataFlags;
pub use eval::EvalFlags;
pub use log::LogFlags;
pub use model::ModelFlags;
pub use optim::OptimFlags;
pub use run::RunFlags;
pub use zero::{Fsdp, ZeroFlags};

use super::config::Config;
use super::preset::Defaults;
use crate::data::Corpus;
use crate::error::BadInput;

/// What a training step is: the flags that every lab which trains a GPT heeds. A flag that is given beats the preset,
/// wherever it stands.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainFlags {
    #[command(flatten)]
    pub model: ModelFlags,
    #[command(flatten)]
    pub data: DataFlags,
    #[command(flatten)]
    pub optim: OptimFlags,
    /// What all random numbers depend on
    #[arg(long, default_value_t = 1337)]
    pub seed: u64,
}

impl TrainFlags {
    /// Checks the flags against each other and the text, before anything is allocated. `ranks` is what
    /// [`launch::ranks`](crate::launch::ranks) made of `--ranks`; `steps` are the lab's, if not the preset's.
    pub fn resolve(&self, ranks: usize, steps: Option<usize>, corpus: &Corpus) -> Result<Config, BadInput> {
        let defaults = self.defaults();
        let shape = self.model.resolve(&defaults, corpus)?;
        let batch = self.data.batch(ranks)?.unwrap_or(defaults.batch);
        let steps = steps.unwrap_or(defaults.steps);
        in_range("steps", steps, usize::MAX)?;
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

    /// What the preset says.
    pub fn defaults(&self) -> Defaults {
        self.model.preset.defaults()
    }
}

/// Far above any model, and low enough that no figure about a run overflows.
const SIZES: usize = 1 << 16;
const COUNTS: usize = 1 << 20;

/// Refuses 0, and more than `most`.
fn in_range(flag: &str, value: usize, most: usize) -> Result<(), BadInput> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    let upto = if most == usize::MAX { " on".to_string() } else { format!(" to {most}") };
    let help = format!("give a whole number from 1{upto}");
    Err(BadInput::new(format!("--{flag} {value} is out of range"), help))
}

/// Refuses a number that is not `sound`, which those are that follow `rule`.
fn ensure(flag: &str, value: f64, sound: bool, rule: &str) -> Result<(), BadInput> {
    if sound {
        return Ok(());
    }
    Err(BadInput::new(format!("--{flag} {value} is out of range"), format!("give {rule}")))
}

/// A share of something, less than all of it.
fn is_below_one(x: f64) -> bool {
    (0.0..1.0).contains(&x)
}

fn is_not_negative(x: f64) -> bool {
    x >= 0.0 && x.is_finite()
}
