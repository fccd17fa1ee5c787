//! Orders that several labs let the reader choose.

use clap::ValueEnum;
use shardlab::mesh;
use shardlab::parallel::pipeline::Schedule;

/// The order of a pipeline's passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// All forward passes, then all backward passes
    Gpipe,
    /// A backward pass as soon as there is one
    #[value(name = "1f1b")]
    OneForwardOneBackward,
    /// 1F1B with several stages per rank
    Interleaved,
    /// 1F1B in which the weights' gradients wait and fill the bubble: ZB-H1
    ZeroBubble,
}

impl Order {
    /// The schedule, which is this one if it is `interleaved`.
    pub fn schedule(self, interleaved: Schedule) -> Schedule {
        match self {
            Order::Gpipe => Schedule::GPipe,
            Order::OneForwardOneBackward => Schedule::OneForwardOneBackward,
            Order::Interleaved => interleaved,
            Order::ZeroBubble => Schedule::ZeroBubble,
        }
    }
}

/// The axis along which the numbers of ranks run slowest.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Slowest {
    /// Tensor, data, pipeline: Megatron-LM, DeepSpeed
    Pipeline,
    /// Tensor, pipeline, data: picotron, ezpz
    Data,
}

impl Slowest {
    /// The order of a mesh's axes.
    pub fn order(self) -> mesh::Order {
        match self {
            Slowest::Pipeline => mesh::Order::PipelineSlowest,
            Slowest::Data => mesh::Order::DataSlowest,
        }
    }
}
