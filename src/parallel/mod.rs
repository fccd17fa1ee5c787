//! Ways to divide one training job among ranks.

mod ddp;
pub mod partition;
mod queue;
pub mod zero;

pub use ddp::{Averaged, Ddp};
pub use zero::{Zero, ZeroConfig};
