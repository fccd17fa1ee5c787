//! The flags of ranks that share experts.

use super::apparatus::Break;
use clap::{Parser, ValueEnum};
use kit::flags::{
    StrategyFlag, is_not_negative, is_positive, number, one_of, positive, whole, without,
};
use kit::{RunFlags, TrainFlags, help};
use shardlab::model::{Auxiliary, Scope};
use shardlab::plan::{Capacity, Drops, Groups, Scores, Selection};
use std::path::PathBuf;

/// Expert parallelism: ranks that hold different experts of every block.
#[derive(Parser)]
#[command(name = "lab13", version)]
#[command(mut_arg("global_batch", |flag| without::<usize>(flag, "give --batch, the sequences of a rank")))]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab trains a few steps: leave it out")))]
#[command(mut_arg("strategy", |flag| flag.conflicts_with_all(["broken", "show"])))]
#[command(after_long_help = help::examples("lab13", &[
    ("--show bytes", "what gathering sends, and what dispatching does"),
    ("--show buys --ranks 2 --steps 500", "mixtures beside a dense model of as many FLOPs"),
    ("--break average-all", "gradients divided by the wrong number, and a loss that looks right"),
    ("--break no-balance", "routers that nothing keeps even"),
    ("--shared 1 --link 100us,50MB/s", "a shared expert computes while tokens travel"),
    ("--scores sigmoid --bias --shared 1", "balanced without a loss, as DeepSeek-V3 is"),
    ("--strategy dp=2,tp=2,cp=2,ep=4,zero=2", "experts among data and context ranks"),
]))]
pub struct Args {
    /// Ranks that share the experts: threads of this process [default: 4], or the launcher's
    /// processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Training steps
    #[arg(long, default_value_t = 200, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: usize,
    #[command(flatten)]
    pub experts: ExpertFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    /// Compute the shared expert before tokens travel, and average gradients after all passes
    #[arg(long, hide_short_help = true, help_heading = help::STRATEGY)]
    pub no_overlap: bool,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub run: RunFlags,
    /// Write one JSON line per step of the training to this file
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    pub metrics: Option<PathBuf>,
    /// Draw the loads of experts as SVG
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    pub svg: Option<PathBuf>,
    /// Compute something else, and draw it
    #[arg(long, value_enum, help_heading = help::INSTEAD)]
    pub show: Option<Show>,
    /// Trainings of each model with --show buys, from seeds that follow each other
    #[arg(long, requires = "show", default_value_t = 3, value_parser = whole(1..=100), hide_short_help = true, help_heading = help::INSTEAD)]
    pub seeds: usize,
    /// Make a mistake, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "show", help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// The experts of each block.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::MODEL)]
pub struct ExpertFlags {
    /// Experts in place of each MLP [default: 8, or 2 for each rank]
    #[arg(long, value_parser = whole(1..=1 << 10), conflicts_with = "show")]
    pub experts: Option<usize>,
    /// Experts of each token
    #[arg(long, default_value_t = 2, value_parser = whole(1..=1 << 10), conflicts_with = "show")]
    pub top: usize,
    /// Experts beside these, which compute for every token
    #[arg(long, default_value_t = 0, value_parser = whole(0..=1 << 10))]
    pub shared: usize,
    /// Layers at the beginning with one MLP in place of experts
    #[arg(long, default_value_t = 0, value_parser = whole(0..=1 << 10), hide_short_help = true)]
    pub dense_layers: usize,
    /// The factor of the balancing loss [default: 0.01, or 0 with --bias]
    #[arg(long, value_parser = number::<f64>(is_not_negative, "0 or more"))]
    pub aux_loss: Option<f64>,
    /// Balance by a bias of each expert, which selects and does not weight
    #[arg(long)]
    pub bias: bool,
    /// By how much a step moves a bias
    #[arg(long, default_value_t = 0.001, value_parser = number::<f64>(is_positive, "more than 0"), requires = "bias", hide_short_help = true)]
    pub bias_rate: f64,
    /// The scores of experts
    #[arg(long, value_parser = one_of::<Scores>(), default_value = "softmax", hide_short_help = true)]
    pub scores: Scores,
    /// Groups of experts, of which the best few count for a token
    #[arg(long, value_parser = whole(1..=1 << 10), hide_short_help = true)]
    pub groups: Option<usize>,
    /// Groups that count for a token [default: half of them]
    #[arg(long, value_parser = whole(1..=1 << 10), requires = "groups", hide_short_help = true)]
    pub top_groups: Option<usize>,
    /// What weights are multiplied by: DeepSeek-V3's routed_scaling_factor
    #[arg(long, default_value_t = 1.0, value_parser = number::<f64>(is_positive, "more than 0"), hide_short_help = true)]
    pub routed_scaling: f64,
    /// The most copies that a rank sends to an expert, as a multiple of an even load: more are
    /// dropped
    #[arg(long, value_parser = number::<f64>(is_positive, "more than 0"), conflicts_with = "broken")]
    pub capacity: Option<f64>,
    /// Which copies are dropped first
    #[arg(
        long,
        value_parser = one_of::<Drops>(),
        default_value = "lightest",
        requires = "capacity",
        hide_short_help = true
    )]
    pub drop: Drops,
    /// The factor of the z-loss, which keeps logits of routers small
    #[arg(long, default_value_t = 0.0, value_parser = number::<f64>(is_not_negative, "0 or more"), hide_short_help = true)]
    pub z_loss: f64,
    /// Whether the balancing loss counts the choices of all ranks; else each counts its own
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, hide_short_help = true)]
    pub aux_over_ranks: bool,
    /// Of what the balancing loss is the sum
    #[arg(long, value_parser = one_of::<Scope>(), default_value = "layer", hide_short_help = true)]
    pub aux_scope: Scope,
}

impl ExpertFlags {
    /// How routers select.
    pub fn selection(&self) -> Selection {
        let groups =
            |count: usize| Groups { count, top_k: self.top_groups.unwrap_or(count.div_ceil(2)) };
        let capacity = |factor| Capacity { factor, drops: self.drop };
        Selection {
            scores: self.scores,
            groups: self.groups.map(groups),
            bias: self.bias,
            factor: self.routed_scaling,
            capacity: self.capacity.map(capacity),
        }
    }

    /// What pulls on routers.
    pub fn auxiliary(&self) -> Auxiliary {
        Auxiliary {
            coefficient: self.aux_loss.unwrap_or(if self.bias { 0.0 } else { 0.01 }),
            scope: self.aux_scope,
            over_ranks: self.aux_over_ranks,
            z: self.z_loss,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Show {
    /// Copies that leave a token's rank, gathered, dispatched, and once to each rank
    Bytes,
    /// What mixtures learn beside a dense model that computes as much for a token
    Buys,
}
