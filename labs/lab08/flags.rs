//! The flags: of the lab, of a run that survives bad steps, and the mistakes. `flags/` has those of
//! two parts.

mod restart;
mod scaling;

pub use restart::{LoadOn, RestartFlags};
pub use scaling::ScalingFlags;

use crate::skipping::{Ranges, SkipPolicy};
use clap::Parser;
use kit::flags::{StrategyFlag, one_of, positive, without};
use kit::{RunFlags, TrainFlags, help};
use shardlab::error::BadInput;
use shardlab::parallel::zero::Stage;
use shardlab::train::Config;
use std::ops::Range;
use std::path::PathBuf;

/// A run that survives bad steps.
#[derive(Parser)]
#[command(name = "lab08", version)]
#[command(mut_arg("layers", |flag| flag.default_value("2")), mut_arg("heads", |flag| flag.default_value("2")))]
#[command(mut_arg("embd", |flag| flag.default_value("64")), mut_arg("block", |flag| flag.default_value("32")))]
#[command(mut_arg("batch", |flag| flag.default_value("2")), mut_arg("grad_accum", |flag| flag.default_value("4")))]
#[command(mut_arg("lr", |flag| flag.default_value("0.004")), mut_arg("warmup", |flag| flag.default_value("10")))]
#[command(mut_arg("strategy", |flag| flag.hide_short_help(true)))]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab's runs begin together: leave it out")))]
#[command(after_long_help = help::examples("lab08", &[
    ("--train-range-to-skip 10 20 25 30 --log", "skip two ranges, and print every step"),
    ("--policy count --steps 80 --trace steps.json", "one training that skips steps, and a timeline"),
    ("--fp16 --steps 60", "gradients in fp16, with a loss scale"),
]))]
pub struct Args {
    /// Ranks: threads of this process [default: 2], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Training steps
    #[arg(long, default_value_t = 120, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: usize,
    #[command(flatten)]
    pub survive: SurviveFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub run: RunFlags,
}

/// The steps that are bad, and what the run does about them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct SurviveFlags {
    /// Train once and skip these steps: the first and the last step of each range
    #[arg(long, value_name = "STEP", num_args = 1.., allow_negative_numbers = true)]
    pub train_range_to_skip: Vec<i64>,
    /// Train once and skip in this way; without --train-range-to-skip, the bad steps
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,
    /// Replace the text of these steps by random characters [default: 61 64]
    #[arg(long, value_names = ["FIRST", "LAST"], num_args = 2)]
    pub poison: Option<Vec<usize>>,
    /// Leave the text as it is
    #[arg(long, conflicts_with = "poison", hide_short_help = true)]
    pub no_poison: bool,
    /// Find spikes of the loss in a metrics file, and exit [default: the metrics of this lab's last
    /// run]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["metrics", "trace"], help_heading = help::INSTEAD)]
    pub find_spikes: Option<Option<PathBuf>>,
    /// Train once and print the first and last tokens of every micro-batch that rank 0 draws
    #[arg(long, conflicts_with = "RestartFlags", help_heading = help::OUTPUT, hide_short_help = true)]
    pub print_tokens: bool,
    /// Train once and print Megatron-DeepSpeed's log
    #[arg(long, help_heading = help::OUTPUT)]
    pub log: bool,
    /// The log as the source prints it: a skipped step has a time, a speed and the last step's norm
    #[arg(long, conflicts_with_all = ["log", "RestartFlags", "stall", "fp16"], help_heading = help::OUTPUT, hide_short_help = true)]
    pub log_skipped: bool,
    /// Write one JSON line per step to this file [default: metrics.jsonl in the run's folder]. Not
    /// where a restart would overwrite it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["RestartFlags", "stall"], help_heading = help::OUTPUT)]
    pub metrics: Option<PathBuf>,
    /// Write every rank's steps to this file, for ui.perfetto.dev: those of the first training, if
    /// there are several
    #[arg(long, value_name = "FILE", conflicts_with_all = ["RestartFlags", "stall"], help_heading = help::OUTPUT)]
    pub trace: Option<PathBuf>,
    /// Stage of ZeRO
    #[arg(
        long,
        value_parser = one_of::<Stage>(),
        value_name = "STAGE",
        default_value = "1",
        hide_short_help = true
    )]
    pub zero: Stage,
    /// Steps from one checkpoint to the next
    #[arg(long, value_name = "STEPS", default_value_t = 25, value_parser = positive(), hide_short_help = true)]
    pub save_every: usize,
    #[command(flatten)]
    pub restart: RestartFlags,
    /// Measure for how long a save stops the training, with a model of 7 million parameters
    #[arg(long, help_heading = help::INSTEAD, hide_short_help = true)]
    pub stall: bool,
    #[command(flatten)]
    pub scaling: ScalingFlags,
    /// Make a mistake, and see what notices
    #[arg(long = "break", value_enum, conflicts_with_all = ["policy", "RestartFlags"], help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// Ways to skip bad steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Draw all micro-batches of each skipped step, and count the step
    Count,
    /// Draw one micro-batch for each skipped step, and count nothing: wrong with gradient
    /// accumulation
    OneBatch,
    /// Compute every step, and skip the update if a rank's loss, or the gradient norm, is far above
    /// those before
    Auto,
}

impl Policy {
    /// The treatment of steps in a range.
    pub fn of_ranges(self) -> SkipPolicy {
        if self == Policy::OneBatch {
            SkipPolicy::OneBatch
        } else {
            SkipPolicy::Count
        }
    }
}

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// Only the last rank skips the range
    OneRank,
    /// Gradients are clipped before they are unscaled, with --fp16
    ClipFirst,
}

/// The part of the lab that a run shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A spike, the range that it takes, and the run without it.
    Story,
    /// One training.
    Once,
    /// One training that saves, and continues from its checkpoints.
    Restart,
    /// The time for which saves stop a training.
    Stall,
    /// One training in fp16, with a loss scale.
    Scaling,
}

impl SurviveFlags {
    /// Whether each step has its line in a log.
    pub fn prints_log(&self) -> bool {
        self.log || self.log_skipped
    }

    /// The part of the lab that the flags ask for.
    pub fn mode(&self) -> Mode {
        if self.stall {
            return Mode::Stall;
        }
        if self.restart.asked() {
            return Mode::Restart;
        }
        if self.scaling.fp16 {
            return Mode::Scaling;
        }
        let once = self.policy.is_some()
            || self.print_tokens
            || self.prints_log()
            || self.broken.is_some();
        if once || !self.train_range_to_skip.is_empty() {
            Mode::Once
        } else {
            Mode::Story
        }
    }

    /// The bad micro-batches of each rank, counted from 0, and the steps to skip, checked.
    pub fn resolve(&self, config: &Config) -> Result<(Range<usize>, Ranges), BadInput> {
        if self.policy == Some(Policy::Auto) && !self.train_range_to_skip.is_empty() {
            let what =
                "--policy auto finds the steps to skip, and --train-range-to-skip names them";
            return Err(BadInput::new(what, "give one of the two"));
        }
        if self.restart.asked() {
            self.restart.check(config)?;
            if self.policy == Some(Policy::Auto) {
                let what = "--policy auto is not for a training with --resume, --load-on, --keep, --checkpoints or --kill-rank";
                let help = "its limit follows losses that no checkpoint stores";
                return Err(BadInput::new(what, help));
            }
        }
        self.ensure_breaks(config)?;
        let bad = self.bad_steps()?;
        let skips = matches!(self.policy, Some(Policy::Count | Policy::OneBatch))
            || self.broken == Some(Break::OneRank);
        let ends = match (&self.train_range_to_skip[..], bad) {
            ([], Some((first, last))) if skips => vec![first as i64, last as i64],
            ([], None) if skips => {
                let help = "name its first and last step: --train-range-to-skip 61 64";
                return Err(BadInput::new("there is no range to skip", help));
            }
            (ends, _) => ends.to_vec(),
        };
        let ranges = Ranges::parse(&ends)?;
        if let Some((first, last)) = ranges.ends().find(|range| range.0 > config.steps) {
            let what = format!(
                "--train-range-to-skip {first} {last} begins after the last step, {}",
                config.steps
            );
            return Err(BadInput::new(what, "give more --steps, or an earlier range"));
        }
        let m = config.grad_accum;
        let draws = bad.map_or(0..0, |(first, last)| (first - 1) * m..last * m);
        Ok((draws, ranges))
    }

    /// Refuses a mistake that this run cannot make.
    fn ensure_breaks(&self, config: &Config) -> Result<(), BadInput> {
        let (what, help) = match (self.broken, self.scaling.fp16) {
            (Some(Break::OneRank), _) if config.ranks == 1 => {
                ("a single rank is all ranks, and nothing is wrong", "give --ranks 2 or more")
            }
            (Some(Break::ClipFirst), false) => {
                ("--break clip-first needs gradients that are scaled", "give --fp16 with it")
            }
            (Some(Break::OneRank), true) => {
                ("--break one-rank does not go with --fp16", "leave out one of them")
            }
            _ => return Ok(()),
        };
        Err(BadInput::new(what, help))
    }

    /// The first and the last step whose text is damaged.
    fn bad_steps(&self) -> Result<Option<(usize, usize)>, BadInput> {
        match self.poison.as_deref() {
            _ if self.no_poison => Ok(None),
            None if self.scaling.fp16 => Ok(None),
            // A kill is a different accident.
            None if (self.stall || self.restart.asked()) && self.train_range_to_skip.is_empty() => {
                Ok(None)
            }
            None => Ok(Some((61, 64))),
            Some(&[first, last]) if 1 <= first && first <= last => Ok(Some((first, last))),
            Some(ends) => {
                let ends: Vec<String> = ends.iter().map(usize::to_string).collect();
                let what = format!("--poison {} is no range of steps", ends.join(" "));
                Err(BadInput::new(
                    what,
                    "give its first and its last step, counted from 1: --poison 61 64",
                ))
            }
        }
    }
}
