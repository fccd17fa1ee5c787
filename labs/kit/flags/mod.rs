//! The flags of training labs, in groups. A lab flattens the groups that it supports, and clap
//! refuses all other flags.
//!
//! Reading order: `model.rs`, `data.rs`, `optim.rs` and `precision.rs` define a step, and `muon.rs`
//! in some labs; [`TrainFlags`] makes a [`Config`] of them, and `preset.rs` names three runs.
//! `comm.rs` has the flags about communication. `zero.rs` chooses the state that ranks shard,
//! `strategy.rs` all of how ranks divide the job, and `twice.rs` refuses a flag that says the same;
//! `orders.rs` has the orders of ranks and of a pipeline's passes. `eval.rs`, `log.rs` and `run.rs`
//! choose a run's screens and files, and `shown.rs` refuses what `--show` would not read.
//! `names.rs` says by which flag one sets what an error of the library names.
//!
//! `arguments.rs` reads a command line, and `help.rs` has what `-h` and `--help` say of it.

mod arguments;
mod comm;
mod data;
mod eval;
pub mod help;
mod log;
mod model;
mod muon;
mod names;
mod optim;
mod orders;
mod precision;
mod preset;
mod run;
mod shown;
mod strategy;
mod twice;
mod zero;

pub use arguments::{arguments, lab, main};
pub use comm::{CommFlags, link};
pub use data::DataFlags;
pub use eval::{Due, EvalConfig, EvalFlags, characters};
pub use log::LogFlags;
pub use model::ModelFlags;
pub use muon::{MuonFlags, Updates};
pub use names::{explain, with_flags};
pub use optim::OptimFlags;
pub use orders::{Order, Slowest};
pub use precision::PrecisionFlags;
pub use preset::{Defaults, Preset};
pub use run::RunFlags;
pub use strategy::{StrategyFlag, ensure_divides, ensure_runs, read_strategy};
pub(crate) use twice::ensure_said_once;
pub use zero::ZeroFlags;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::model::Auxiliary;
use shardlab::named::{self, NamedValue};
use shardlab::parallel::Strategy;
use shardlab::train::Config;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The flags that define a training step, in every lab that trains a GPT. A given flag overrides
/// the preset, in any order.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainFlags {
    #[command(flatten)]
    pub model: ModelFlags,
    #[command(flatten)]
    pub data: DataFlags,
    #[command(flatten)]
    pub optim: OptimFlags,
    #[command(flatten)]
    pub precision: PrecisionFlags,
    /// Random seed of weights, batches, dropout and samples
    #[arg(long, default_value_t = 1337, help_heading = help::TRAINING)]
    pub seed: u64,
}

impl TrainFlags {
    /// Takes the micro-batches that a strategy names. A flag that says the same was refused.
    pub fn take(&mut self, strategy: &Strategy) {
        self.data.take(strategy);
    }

    /// Checks the flags against each other and the text, before allocating memory. `ranks` is the
    /// result of [`launch::ranks`](shardlab::launch::ranks). `steps` overrides the preset's.
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
            muon: None,
            clip,
            dropout: self.model.dropout,
            auxiliary: Auxiliary::default(),
            precision: self.precision.dtype,
            reduce: self.precision.reduce_dtype,
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

/// Reads a whole number in `range`.
pub fn whole(
    range: RangeInclusive<usize>,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text: &str| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ if *range.end() == usize::MAX => {
            Err(format!("give a whole number, {} or more", range.start()))
        }
        _ => Err(format!("give a whole number from {} to {}", range.start(), range.end())),
    }
}

/// Reads a whole number, 1 or more.
pub fn positive() -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    whole(1..=usize::MAX)
}

/// Reads a value by its name. `--help` lists all of them.
pub fn one_of<T: NamedValue>() -> impl TypedValueParser<Value = T> {
    let possible = T::TABLE.iter().map(|(_, name, about)| {
        let about = about.trim_end_matches('.');
        let possible = PossibleValue::new(name);
        if about.is_empty() {
            possible
        } else {
            possible.help(about)
        }
    });
    PossibleValuesParser::new(possible)
        .try_map(|name| named::find(&name).ok_or("is none of the possible values"))
}

/// Reads a number that is `sound`. `rule` describes such numbers.
pub fn number<T: FromStr + Copy + Into<f64> + 'static>(
    sound: fn(f64) -> bool,
    rule: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text: &str| match text.parse::<T>() {
        Ok(number) if sound(number.into()) => Ok(number),
        _ => Err(format!("give {rule}")),
    }
}

/// Hides and refuses a flag that a lab's group has, and the lab has not. `instead` says what to do.
pub fn without<T: Clone + Send + Sync + 'static>(
    flag: clap::Arg,
    instead: &'static str,
) -> clap::Arg {
    flag.hide(true).value_parser(move |_: &str| Err::<T, _>(instead))
}

/// Refuses `--grad-accum`, for labs with a pipeline.
pub fn one_micro_step(text: &str) -> Result<usize, &'static str> {
    match text {
        "1" => Ok(1),
        _ => Err("a pipeline's micro-batches are its micro-steps: give --micro-batches"),
    }
}

/// Refuses a deliberate mistake that one rank alone cannot make.
pub fn ensure_ranks_can_differ(breaks: bool, ranks: usize) -> Result<(), BadInput> {
    if breaks && ranks < 2 {
        return Err(BadInput::new("--break needs ranks that can differ", "give --ranks 2 or more"));
    }
    Ok(())
}

/// Refuses numbers outside of `range`, where it depends on other flags or the number comes from a
/// file.
pub fn in_range(flag: &str, value: usize, range: RangeInclusive<usize>) -> Result<(), BadInput> {
    if range.contains(&value) {
        return Ok(());
    }
    let help = format!("give a whole number from {} to {}", range.start(), range.end());
    Err(BadInput::new(format!("--{flag} {value} is out of range"), help))
}

/// Whether a fraction is at least 0 and below 1.
pub fn is_below_one(x: f64) -> bool {
    (0.0..1.0).contains(&x)
}

pub fn is_positive(x: f64) -> bool {
    x > 0.0 && x.is_finite()
}

pub fn is_not_negative(x: f64) -> bool {
    x >= 0.0 && x.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        let read = |text: &str| whole(2..=4)(text).ok();
        let numbers = ["1", "2", "4", "5", "-1", "x", ""].map(read);
        assert_eq!(numbers, [None, Some(2), Some(4), None, None, None, None]);
        let says = |error: Result<usize, String>| error.unwrap_err();
        assert_eq!(says(whole(2..=4)("5")), "give a whole number from 2 to 4");
        assert_eq!(says(positive()("0")), "give a whole number, 1 or more");
        let share = number::<f32>(is_below_one, "at least 0 and below 1");
        assert_eq!(share("0.5"), Ok(0.5));
        for bad in ["1", "-0.1", "nan", "inf", "half"] {
            assert_eq!(share(bad), Err("give at least 0 and below 1".to_string()));
        }
        assert!(is_positive(1e-9) && !is_positive(0.0) && !is_positive(f64::INFINITY));
        assert!(is_not_negative(0.0) && !is_not_negative(f64::NAN));
    }

    #[test]
    fn a_mistake_needs_ranks_that_can_differ() {
        assert!(ensure_ranks_can_differ(true, 1).is_err());
        assert!(ensure_ranks_can_differ(true, 2).is_ok());
        assert!(ensure_ranks_can_differ(false, 1).is_ok());
    }
}
