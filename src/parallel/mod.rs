//! Ways to divide one training job among ranks.
//!
//! Reading order: `ddp.rs` (data parallelism), `buckets.rs` (gradients that travel together), `queue.rs` (collectives in
//! flight); `partition.rs` (who holds what), `norm.rs` (the norm of sharded gradients), `zero/`; `tensor/` (tensor and sequence parallelism); `pipeline/`.

mod buckets;
mod ddp;
mod norm;
pub mod partition;
pub mod pipeline;
mod queue;
pub mod tensor;
pub mod zero;

pub use ddp::Ddp;
pub use norm::sharded_norm;
pub use tensor::TensorParallel;
pub use zero::{Zero, ZeroConfig};

use std::time::Instant;

/// One collective on gradients, as this rank saw it.
#[derive(Clone, Copy, Debug)]
pub struct Averaged {
    /// From when this rank started it to when it was complete.
    pub start: Instant,
    pub end: Instant,
    /// When this rank did nothing but wait for it.
    pub waited: (Instant, Instant),
}
