//! The flags of ranks that share experts.

use super::apparatus::Break;
use clap::{Parser, ValueEnum};
use kit::flags::{StrategyFlag, is_not_negative, number, positive, whole, without};
use kit::help;
use kit::{RunFlags, TrainFlags};
use shardlab::model::{Auxiliary, Scope};
use std::path::PathBuf;

/// Expert parallelism: ranks that hold different experts of every block.
#[derive(Parser)]
#[command(name = "lab13", version)]
#[command(mut_arg("global_batch", |flag| without::<usize>(flag, "give --batch, the sequences of a rank")))]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab trains a few steps: leave it out")))]
#[command(mut_arg("strategy", |flag| flag.conflicts_with_all(["broken", "show"])))]
#[command(after_long_help = help::examples("lab13", &[
    ("--show bytes", "what gathering sends, and what dispatching does"),
    ("--break average-all", "gradients divided by the wrong number, and a loss that looks right"),
    ("--break no-balance", "routers that nothing keeps even"),
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
    /// Draw the copies that leave a token's rank, for any number of its experts
    #[arg(long, value_enum, help_heading = help::INSTEAD)]
    pub show: Option<Show>,
    /// Make a mistake, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// The experts of each block.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::MODEL)]
pub struct ExpertFlags {
    /// Experts in place of each MLP [default: 8, or 2 for each rank]
    #[arg(long, value_parser = whole(1..=1 << 10))]
    pub experts: Option<usize>,
    /// Experts of each token
    #[arg(long, default_value_t = 2, value_parser = whole(1..=1 << 10))]
    pub top: usize,
    /// The factor of the balancing loss
    #[arg(long, default_value_t = 0.01, value_parser = number::<f64>(is_not_negative, "0 or more"))]
    pub aux_loss: f64,
    /// The factor of the z-loss, which keeps logits of routers small
    #[arg(long, default_value_t = 0.0, value_parser = number::<f64>(is_not_negative, "0 or more"), hide_short_help = true)]
    pub z_loss: f64,
    /// Whether the balancing loss counts the choices of all ranks; else each counts its own
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, hide_short_help = true)]
    pub aux_over_ranks: bool,
    /// Of what the balancing loss is the sum
    #[arg(long, value_enum, default_value = "layer", hide_short_help = true)]
    pub aux_scope: AuxScope,
}

impl ExpertFlags {
    /// What pulls on routers.
    pub fn auxiliary(&self) -> Auxiliary {
        Auxiliary {
            coefficient: self.aux_loss,
            scope: match self.aux_scope {
                AuxScope::Layer => Scope::Layer,
                AuxScope::Model => Scope::Model,
            },
            over_ranks: self.aux_over_ranks,
            z: self.z_loss,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum AuxScope {
    /// One loss for each layer, as in Megatron-LM
    Layer,
    /// One over the tokens of all layers, as in transformers
    Model,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Show {
    /// Copies that leave, gathered, dispatched, and once to each rank
    Bytes,
}
