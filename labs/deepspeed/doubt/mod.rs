//! Whether the files say the truth, and what of it can be put right.
//!
//! Reading order: `evidence.rs` (whether each file is its rank's), `alike.rs` (whether all ranks
//! have as many flat buffers, of the same types), `weights.rs` (the model's own weights as a
//! check), `repair.rs` (records that are wrong), `strange.rs` (what the result has no place for).

mod alike;
mod evidence;
mod repair;
mod strange;
mod weights;

pub(crate) use strange::first;
