//! Ways to divide one training job among ranks.

mod ddp;

pub use ddp::{Averaged, Ddp};
