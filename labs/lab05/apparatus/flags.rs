//! The flags of tensor parallelism.

use super::{example, gemm, placement};
use anyhow::Result;
use clap::ValueEnum;
use kit::Slowest;
use kit::help;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::mesh::{Coordinates, Layout};

/// How ranks share a model, and the mesh that they form.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct TensorFlags {
    /// Train in full with this many tensor ranks per replica; the other ranks are further replicas
    #[arg(long, value_name = "RANKS", group = "full")]
    pub tp: Option<usize>,
    /// Also shard the activations between the matrices, by position: sequence parallelism
    #[arg(long, requires = "tp")]
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
    /// The mesh of a run on `ranks` ranks: without --tp, all of them share one model.
    pub fn layout(&self, ranks: usize) -> Result<Layout, BadInput> {
        self.mesh(ranks, self.tp.unwrap_or(ranks), 1)
    }

    fn mesh(&self, ranks: usize, tensor: usize, pipeline: usize) -> Result<Layout, BadInput> {
        let data = (ranks / tensor.saturating_mul(pipeline).max(1)).max(1);
        let layout = Layout {
            sizes: Coordinates { data, pipeline, tensor },
            order: self.order.order(),
        };
        layout.check(ranks).map(|()| layout)
    }

    /// Prints what --show asks for. Only the sum runs ranks.
    pub fn draw(&self, screen: &Screen, show: Show, ranks: Option<usize>) -> Result<()> {
        if show == Show::Sum {
            return example::show(screen, launch::ranks(ranks, 3)?);
        }
        let ranks = ranks.unwrap_or(8);
        let layout = self.mesh(ranks, self.tp.unwrap_or(2), self.pp.unwrap_or(2))?;
        if launch::is_first_process() {
            screen.say(match show {
                Show::Mesh => placement::mesh(
                    screen,
                    &layout,
                    &placement::nodes(ranks, self.per_node.unwrap_or(4)),
                ),
                _ => gemm::both(screen),
            });
        }
        Ok(())
    }
}
