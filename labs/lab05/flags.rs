//! The flags of tensor parallelism.

use super::Break;
use clap::{ArgGroup, Parser, ValueEnum};
use kit::flags::{StrategyFlag, positive, without};
use kit::{EvalFlags, LogFlags, RunFlags, Slowest, TrainFlags, ZeroFlags, help};
use shardlab::error::BadInput;
use shardlab::mesh::{Coordinates, Layout};
use shardlab::parallel::Strategy;

/// Tensor and sequence parallelism: ranks that share every layer. With --tp, the model is trained
/// in full.
#[derive(Parser)]
#[command(name = "lab05", version)]
// The comparison trains a few steps, and writes nothing.
#[command(mut_group("EvalFlags", |flags| flags.requires("full")), mut_group("LogFlags", |flags| flags.requires("full")))]
#[command(mut_group("ZeroFlags", |flags| flags.requires("full")), mut_arg("dry_run", |flag| flag.requires("full")))]
#[command(mut_arg("dtype", |flag| flag.requires("full")), mut_arg("reduce_dtype", |flag| flag.requires("full")))]
#[command(mut_arg("offload", |flag| flag.hide_short_help(true)))]
#[command(mut_arg("tiles", |flag| without::<usize>(flag, "tensor ranks cut every matrix anyway: leave it out")))]
#[command(group(ArgGroup::new("full").multiple(true)))]
#[command(mut_arg("strategy", |flag| flag.group("full").conflicts_with("show")))]
#[command(mut_arg("init_from", |flag| flag.requires("full")))]
#[command(after_long_help = help::examples("lab05", &[
    ("--tp 2 --ranks 4 --zero 1", "tensor, data and ZeRO together, in full"),
    ("--show mesh --ranks 16", "which ranks are neighbours"),
    ("--break no-g", "a missing all-reduce, and the check that notices"),
]))]
pub struct Args {
    /// Ranks: threads of this process [default: 2, or --tp], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Training steps [default: 50, with --tp the preset's]
    #[arg(long, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: Option<usize>,
    #[command(flatten)]
    pub tensor: TensorFlags,
    #[command(flatten)]
    pub zero: ZeroFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub eval: EvalFlags,
    #[command(flatten)]
    pub log: LogFlags,
    #[command(flatten)]
    pub run: RunFlags,
    /// Make a mistake, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "full", help_heading = help::BREAK)]
    pub broken: Option<Break>,
    /// Measure tokens per second beside one rank and beside DDP, here and over a slow link
    #[arg(long, conflicts_with_all = ["broken", "full", "steps"], help_heading = help::INSTEAD)]
    pub bench: bool,
}

/// How ranks share a model, and the mesh that they form.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct TensorFlags {
    /// Train in full with this many tensor ranks per replica; the other ranks are further replicas
    #[arg(long, value_name = "RANKS", group = "full")]
    pub tp: Option<usize>,
    /// Also shard the activations between the matrices, by position: sequence parallelism
    #[arg(long, requires = "full")]
    pub sp: bool,
    /// Pad the vocabulary until each rank has a multiple of this many tokens; Megatron-LM's default
    /// is 128
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 1,
        hide_short_help = true
    )]
    pub make_vocab_size_divisible_by: usize,
    /// Draw a matrix product that two ranks share, or the mesh of ranks
    #[arg(long, value_enum, help_heading = help::INSTEAD)]
    pub show: Option<Show>,
    /// The axis along which the numbers of ranks run slowest; tensor ranks are always nearest
    #[arg(long, value_enum, default_value_t = Slowest::Pipeline, hide_short_help = true)]
    pub order: Slowest,
    /// Pipeline stages in the mesh that --show draws [default: 2]
    #[arg(long, requires = "show", hide_short_help = true, help_heading = help::INSTEAD)]
    pub pp: Option<usize>,
    /// Ranks on each node of the mesh that --show draws [default: 4]
    #[arg(long, requires = "show", hide_short_help = true, help_heading = help::INSTEAD)]
    pub per_node: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Show {
    /// One sum of products, passed along from rank to rank, and as one all-reduce [three ranks]
    Sum,
    /// Which rank holds which elements of X, A and Y
    Gemm,
    /// Which ranks are neighbours
    Mesh,
}

impl TensorFlags {
    /// How `ranks` ranks divide the job: without --tp, all of them share one model.
    pub fn strategy(&self, ranks: usize) -> Result<Strategy, BadInput> {
        let layout = self.mesh(ranks, self.tp.unwrap_or(ranks), 1)?;
        Ok(Strategy {
            data: layout.sizes.data,
            tensor: layout.sizes.tensor,
            sequence: self.sp,
            order: layout.order,
            vocabulary_multiple: self.make_vocab_size_divisible_by,
            ..Strategy::SINGLE
        })
    }

    /// A mesh of `ranks` ranks: of replicas that `tensor` ranks share in each of `pipeline` stages.
    pub fn mesh(&self, ranks: usize, tensor: usize, pipeline: usize) -> Result<Layout, BadInput> {
        let data = (ranks / tensor.saturating_mul(pipeline).max(1)).max(1);
        let layout = Layout {
            sizes: Coordinates { data, pipeline, tensor },
            order: self.order.order(),
        };
        layout.check(ranks).map(|()| layout)
    }
}
