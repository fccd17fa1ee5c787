//! The files of the result.
//!
//! Reading order: `output.rs` (a folder that appears when it is complete), `earlier.rs` (what it
//! may replace), `whole.rs` (one parameter), `common.rs` (what all ranks share).

mod common;
mod earlier;
mod output;
mod whole;

pub(crate) use common::save;
pub use earlier::MANIFEST;
pub(crate) use output::Output;
pub(crate) use whole::merge;
