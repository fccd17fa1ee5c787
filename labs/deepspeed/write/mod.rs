//! The files of the result.
//!
//! Reading order: `output.rs` (a folder that appears when it is complete), `whole.rs` (one
//! parameter), `common.rs` (what all ranks share), `lacks.rs` (what DeepSpeed will not load).

mod common;
mod lacks;
mod output;
mod whole;

pub(crate) use common::save;
pub(crate) use lacks::lacks;
pub(crate) use output::Output;
pub(crate) use whole::{merge, merge_frozen};
