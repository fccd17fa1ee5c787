//! Ways to divide one training job among ranks.

mod ddp;
pub mod partition;

pub use ddp::{Averaged, Ddp};
