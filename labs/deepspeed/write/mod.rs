//! The files of the result.
//!
//! Reading order: `output.rs` (a folder that appears when it is complete), `whole.rs` (one
//! parameter), `common.rs` (what all ranks share).

mod common;
mod output;
mod whole;

pub(crate) use common::save;
pub(crate) use output::Output;
pub(crate) use whole::merge;
