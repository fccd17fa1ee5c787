//! Ways to divide one training job among ranks.
//!
//! Letters in shapes are those of `tensor/` and `model/`: S sequences of L tokens, D the width, H
//! heads, V tokens of the vocabulary, E experts, k of them for each token. On a rank, D/t is what
//! one of t tensor ranks holds, L/c what one of c context ranks does, E/e what one of e expert
//! ranks does.
//!
//! Reading order: `ddp.rs` (data parallelism), `buckets.rs` (gradients that ranks average
//! together), `queue.rs` (collectives in flight), `partition.rs` (the slices that each rank holds),
//! `replicas.rs` (the ranks that hold the same), `norm.rs` (the norm of sharded gradients), `zero/`
//! (sharded state), `tensor/` (tensor and sequence parallelism), `context/` (shared sequences),
//! `experts.rs` (shared experts), `pipeline/`, `wire.rs` (what these four send), `unshard.rs` (the
//! whole model again). Which of all these a job uses is a [`strategy`], of the package `shapes`.

mod buckets;
pub mod context;
mod ddp;
pub mod experts;
mod norm;
pub mod partition;
pub mod pipeline;
mod queue;
mod replicas;
pub mod tensor;
mod unshard;
mod wire;
pub mod zero;

pub use context::ContextParallel;
pub use ddp::Ddp;
pub use experts::ExpertParallel;
pub use norm::sharded_norm;
pub use replicas::Replicas;
pub use shapes::strategy::{self, Strategy};
pub use tensor::TensorParallel;
pub use unshard::unshard;
pub use zero::{Zero, ZeroConfig};

use std::time::Instant;

/// The time of one collective on gradients, on this rank.
#[derive(Clone, Copy, Debug)]
pub struct Averaged {
    /// From this rank's start of the collective to its completion.
    pub start: Instant,
    pub end: Instant,
    /// The time in which this rank only waited for the collective.
    pub waited: (Instant, Instant),
}
