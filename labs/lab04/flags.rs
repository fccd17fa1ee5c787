//! lab04's flags.

use clap::{ArgGroup, Parser, ValueEnum};
use kit::flags::{MuonFlags, Preset, StrategyFlag, is_positive, number, positive};
use kit::{EvalFlags, LogFlags, ModelFlags, RunFlags, TrainFlags, ZeroFlags, help};
use shardlab::error::BadInput;
use shardlab::parallel::zero::Stage;
use shardlab::train::Config;

/// ZeRO's stages, side by side: what each rank holds, and what it costs to hold less. With --zero,
/// only one stage.
#[derive(Parser)]
#[command(name = "lab04", version)]
// Stages side by side train a few steps to be compared, and write nothing.
#[command(mut_group("EvalFlags", |flags| flags.requires("stage")), mut_group("LogFlags", |flags| flags.requires("stage")))]
#[command(mut_arg("dry_run", |flag| flag.requires("stage")))]
// One strategy has one stage.
#[command(group(ArgGroup::new("stage").multiple(true)), mut_arg("strategy", |flag| flag.group("stage")))]
#[command(after_long_help = help::examples("lab04", &[
    ("--show holdings", "what each rank holds, drawn for every stage"),
    ("--zero 3 --steps 50 --trace step.json", "train with one stage, with a timeline"),
    ("--zero 3 --offload cpu", "keep the state in the host's memory"),
]))]
pub struct Args {
    /// Number of ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Training steps [default: 6; with --zero the preset's]
    #[arg(long, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: Option<usize>,
    #[command(flatten)]
    pub zero: ZeroFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    /// Draw what each rank holds, or one computed step as a timeline
    #[arg(long, value_enum, help_heading = help::INSTEAD)]
    pub show: Option<Show>,
    /// Leave out stages in which a rank holds more MB of parameters, gradients and optimizer states
    #[arg(long, value_name = "MB", value_parser = number::<f64>(is_positive, "megabytes, a finite number above 0"), help_heading = help::INSTEAD)]
    pub memory_limit: Option<f64>,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub muon: MuonFlags,
    #[command(flatten)]
    pub eval: EvalFlags,
    #[command(flatten)]
    pub log: LogFlags,
    #[command(flatten)]
    pub run: RunFlags,
    /// Make a mistake on purpose, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "stage", help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// What is drawn.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Show {
    /// Which rank holds which slice, in every stage
    Holdings,
    /// One step, unit by unit: gathers, passes, reductions and waiting. The step is computed, not
    /// run
    Timeline,
}

/// A deliberate mistake.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Break {
    /// All padding is recorded on the last rank
    PaddingOnLast,
    /// Each rank clips by the norm of the gradients in its slice
    LocalNorm,
    /// A layer uses a parameter after its release
    UsedAfterRelease,
}

/// Default to 12 blocks of width 64, so that one gathered block is about 1/12 of the model. Flags
/// override.
pub fn default_to_many_small_blocks(model: &mut ModelFlags, zero: &mut ZeroFlags) {
    if model.preset == Preset::Baby && model.init_from.is_none() {
        model.layers = model.layers.or(Some(12));
        model.embd = model.embd.or(Some(64));
        zero.prefetch_bucket = zero.prefetch_bucket.or(Some(1 << 16));
    }
}

/// Refuses a --break that no check could notice.
pub fn refuse_breaking_nothing(
    args: &Args,
    config: &Config,
    stages: &[Stage],
) -> Result<(), BadInput> {
    use Break::{LocalNorm, PaddingOnLast};
    let (what, help) = match args.broken {
        Some(PaddingOnLast) if config.ranks < 3 => {
            ("padding spans ranks only from 3 ranks on", "give --ranks 3")
        }
        Some(LocalNorm) if config.ranks < 2 => {
            ("--break needs ranks that can differ", "give --ranks 2 or more")
        }
        Some(LocalNorm) if config.clip == 0.0 => {
            ("--break local-norm clips, and --clip is 0", "leave --clip out")
        }
        Some(LocalNorm) if stages[0] != Stage::Ddp => {
            ("--break local-norm shows beside stage 0", "leave --memory-limit out")
        }
        _ => return Ok(()),
    };
    Err(BadInput::new(what, help))
}
