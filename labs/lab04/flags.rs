//! lab04's flags.

use clap::{ArgGroup, Parser, ValueEnum};
use kit::flags::{MuonFlags, Preset, StrategyFlag, is_positive, link, number, positive};
use kit::{EvalFlags, LogFlags, ModelFlags, RunFlags, TrainFlags, ZeroFlags, help};
use shardlab::comm::Link;
use shardlab::error::BadInput;
use shardlab::parallel::Strategy;
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
    ("--strategy dp=4,zero=3,shard=2", "shard in two groups of two, which hold the same"),
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
    /// The network link between groups that shard (dp=4,zero=3,shard=2), each a simulated node;
    /// --link is then the one in a node
    #[arg(long, value_name = "LATENCY,BANDWIDTH", value_parser = link, hide_short_help = true, help_heading = help::RANKS)]
    pub link_between: Option<Link>,
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
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
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
    /// Each group's copy of the gradients counts in the norm (with shard in --strategy)
    NormOverAll,
    /// Only the last micro-batch's gradients are averaged between groups (with shard, zero=3 and
    /// --grad-accum 2)
    AccumulateLate,
}

/// Default to 12 blocks of width 64, so that one gathered block is about 1/12 of the model. Flags
/// override.
pub fn default_to_many_small_blocks(model: &mut ModelFlags, zero: &mut ZeroFlags) {
    if model.preset == Preset::Baby && model.init_from.is_none() {
        model.layers = model.layers.or(Some(12));
        model.embd = model.embd.or(Some(64));
        if zero.zero.is_none_or(|stage| stage == Stage::Three) {
            zero.prefetch_bucket = zero.prefetch_bucket.or(Some(1 << 16));
        }
    }
}

/// Refuses flags that are not for groups that shard, or only for them.
pub fn refuse_beside_groups(args: &Args, strategy: &Strategy) -> Result<(), BadInput> {
    let of_groups = matches!(args.broken, Some(Break::NormOverAll | Break::AccumulateLate));
    if strategy.replicas == 1 {
        let (what, help) = match args.broken {
            _ if args.link_between.is_some() => (
                "--link-between is the link between groups that shard",
                "give --strategy dp=4,zero=3,shard=2, or --link for all ranks",
            ),
            Some(_) if of_groups => (
                "this --break is a mistake of groups that shard",
                "give --strategy dp=4,zero=3,shard=2",
            ),
            Some(_) if args.zero.zero.is_some() => (
                "this --break shows where stages are compared",
                "leave --zero and --strategy out",
            ),
            _ => return Ok(()),
        };
        return Err(BadInput::new(what, help));
    }
    let EvalFlags { eval_interval, eval_iters, prompt } = &args.eval;
    let LogFlags { all, log_interval, log_all_ranks, metrics, trace } = &args.log;
    let given = [
        ("show", args.show.is_some()),
        ("memory-limit", args.memory_limit.is_some()),
        ("eval-interval", eval_interval.is_some()),
        ("eval-iters", eval_iters.is_some()),
        ("prompt", prompt.is_some()),
        ("all", *all),
        ("log-interval", log_interval.is_some()),
        ("log-all-ranks", *log_all_ranks),
        ("metrics", metrics.is_some()),
        ("trace", trace.is_some()),
    ];
    if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
        let what = format!(
            "--{flag} is not for groups that shard, which are compared with one group in a few steps"
        );
        return Err(BadInput::new(what, format!("leave --{flag} out, or shard in --strategy")));
    }
    match args.broken {
        Some(_) if !of_groups => {
            let what = "this --break shows where stages are compared";
            Err(BadInput::new(what, "leave --strategy out"))
        }
        _ => Ok(()),
    }
}

/// Refuses a --break that no check could notice.
pub fn refuse_breaking_nothing(
    args: &Args,
    config: &Config,
    stages: &[Stage],
) -> Result<(), BadInput> {
    use Break::{AccumulateLate, LocalNorm, PaddingOnLast};
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
        Some(AccumulateLate) if stages[0] != Stage::Three => {
            ("--break accumulate-late is made in stage 3", "give zero=3 in --strategy")
        }
        Some(AccumulateLate) if config.grad_accum < 2 => (
            "--break accumulate-late forgets earlier micro-batches, and there is one",
            "give --grad-accum 2",
        ),
        _ => return Ok(()),
    };
    Err(BadInput::new(what, help))
}
