//! The flags of ranks that share sequences.

use super::Break;
use clap::{Parser, ValueEnum};
use kit::flags::{StrategyFlag, one_micro_step, one_of, positive, whole, without};
use kit::{RunFlags, TrainFlags, help};
use shardlab::parallel::context::{Exchange, Slicing};
use std::path::PathBuf;

/// Context parallelism: ranks that hold different positions of the same sequences.
#[derive(Parser)]
#[command(name = "lab12", version)]
#[command(mut_arg("grad_accum", |flag| flag.hide(true).value_parser(one_micro_step)))]
#[command(mut_arg("global_batch", |flag| without::<usize>(flag, "give --batch, the sequences of a replica")))]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab trains a few steps: leave it out")))]
#[command(mut_arg("strategy", |flag| flag.conflicts_with_all(["broken", "show"])))]
#[command(after_long_help = help::examples("lab12", &[
    ("--show bytes", "which exchange sends least, for how many ranks and query heads"),
    ("--break documents", "packed documents that attend to each other"),
    ("--strategy dp=2,tp=2,pp=2,cp=2,m=2,zero=1,sp", "all axes of a mesh, beside one rank"),
]))]
pub struct Args {
    /// Context ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Training steps at the end
    #[arg(long, default_value_t = 5, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: usize,
    #[command(flatten)]
    pub context: ContextFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub run: RunFlags,
    /// Write one JSON line per step of the training at the end to this file
    #[arg(long, value_name = "FILE", conflicts_with = "broken", help_heading = help::OUTPUT)]
    pub metrics: Option<PathBuf>,
    /// Draw the bytes that each exchange sends
    #[arg(long, value_enum, help_heading = help::INSTEAD)]
    pub show: Option<Show>,
    /// Make a mistake, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// How ranks share sequences, and what is in them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct ContextFlags {
    /// What ranks send each other in the training at the end
    #[arg(long, value_parser = one_of::<Exchange>(), default_value = Exchange::Ring.name())]
    pub comm: Exchange,
    /// Which positions each rank holds
    #[arg(long, value_parser = one_of::<Slicing>(), default_value = Slicing::ZigZag.name())]
    pub slices: Slicing,
    /// Documents that are packed in each sequence; none attends to another
    #[arg(long, default_value_t = 3, value_parser = whole(1..=1 << 10))]
    pub documents: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Show {
    /// What a ring sends for each byte of Ulysses, by ranks and by query heads per key head
    Bytes,
}
