//! The flags: of the lab, of three axes, and the mistakes.

use clap::Parser;
use kit::flags::{StrategyFlag, one_micro_step, positive, whole, without};
use kit::{Order as Passes, RunFlags, Slowest, TrainFlags, help};
use shardlab::error::BadInput;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Pipeline, Schedule};
use shardlab::parallel::zero::Stage;
use shardlab::train::Config;
use std::path::PathBuf;

/// Data, pipeline and tensor parallelism in one job, with ZeRO-1.
#[derive(Parser)]
#[command(name = "lab07", version)]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab keeps no weights: leave it out")))]
#[command(mut_arg("grad_accum", |flag| flag.hide(true).value_parser(one_micro_step)))]
#[command(after_long_help = help::examples("lab07", &[
    ("--tp 1 --pp 4", "eight ranks on two axes: data and pipeline"),
    ("--strategy dp=2,tp=2,pp=2,zero=1,sp", "any strategy, as lab11 prints it"),
    ("--report", "this run as Megatron-LM's log has it"),
    ("--steps 5 --trace steps.json", "a timeline of every rank"),
]))]
pub struct Args {
    /// Ranks: threads of this process [default: 8], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Training steps
    #[arg(long, default_value_t = 20, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: usize,
    #[command(flatten)]
    pub axes: AxesFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub run: RunFlags,
    /// Write every rank's steps to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    pub trace: Option<PathBuf>,
}

/// The axes of a job, and how micro-batches go through its stages.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct AxesFlags {
    /// Tensor ranks, which share every layer
    #[arg(long, value_name = "RANKS", default_value_t = 2)]
    pub tp: usize,
    /// Pipeline ranks, which hold different layers
    #[arg(long, value_name = "RANKS", default_value_t = 2)]
    pub pp: usize,
    /// Chunks of layers per pipeline rank [default: 1, or 2 with --schedule interleaved]
    #[arg(long)]
    pub chunks: Option<usize>,
    /// Micro-batches per replica and step
    #[arg(long, default_value_t = 4, value_parser = whole(1..=1 << 16))]
    pub micro_batches: usize,
    /// The order of forward and backward passes
    #[arg(long, value_enum, default_value_t = Passes::OneForwardOneBackward)]
    pub schedule: Passes,
    /// 1: the data ranks divide the optimizer's state; 0: each holds all of it
    #[arg(long, value_name = "STAGE", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub zero: u8,
    /// The axis along which the numbers of ranks run slowest; tensor ranks are always nearest
    #[arg(long, value_enum, default_value_t = Slowest::Pipeline, hide_short_help = true)]
    pub order: Slowest,
    /// Pad the vocabulary until each tensor rank has a multiple of this many tokens
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 1,
        hide_short_help = true
    )]
    pub make_vocab_size_divisible_by: usize,
    /// Print this run as Megatron-LM's log does, or the log that the lab rebuilds
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "run", help_heading = help::INSTEAD)]
    pub report: Option<Report>,
    /// Make a mistake, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// The log to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Report {
    /// This run's
    Run,
    /// The source's: 8 GPUs, tensor 2, pipeline 4
    Source,
}

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// Each rank clips by its own gradients' norm
    LocalNorm,
    /// First and last stage each train their own copy of the token table
    Untied,
    /// Gradients are averaged in the first backward pass of a step, not in the last
    EarlyAverage,
}

impl AxesFlags {
    /// How `ranks` ranks divide the job, as far as they can.
    pub fn strategy(&self, ranks: usize) -> Result<Strategy, BadInput> {
        let data = (ranks / self.tp.saturating_mul(self.pp).max(1)).max(1);
        let interleaved = self.schedule == Passes::Interleaved && self.pp > 1;
        let chunks = self.chunks.unwrap_or(if interleaved { 2 } else { 1 });
        let pipeline = Pipeline { ranks: self.pp, chunks, micro_batches: self.micro_batches };
        let strategy = Strategy {
            data,
            tensor: self.tp,
            pipeline: self.pp,
            chunks,
            schedule: Some(self.schedule.schedule(Schedule::depth_first(&pipeline))),
            micro_batches: Some(self.micro_batches),
            zero: if self.zero == 0 { Stage::Ddp } else { Stage::One },
            order: self.order.order(),
            vocabulary_multiple: self.make_vocab_size_divisible_by,
            ..Strategy::SINGLE
        };
        strategy.layout().check(ranks).map(|()| strategy)
    }

    /// Refuses a mistake that this job cannot make.
    pub fn refuse(&self, config: &Config, strategy: &Strategy) -> Result<(), BadInput> {
        let (what, help) = match self.broken {
            Some(Break::Untied) if strategy.pipeline == 1 => {
                ("one stage has one token table, and nothing to tie", "give --pp 2")
            }
            Some(Break::EarlyAverage) if config.grad_accum == 1 => {
                ("the first micro-batch is also the last one", "give --micro-batches 2 or more")
            }
            Some(Break::EarlyAverage) if config.ranks == 1 => {
                ("one replica averages with no other", "start twice as many ranks")
            }
            _ => return Ok(()),
        };
        Err(BadInput::new(what, help))
    }
}
