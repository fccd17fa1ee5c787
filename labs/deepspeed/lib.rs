//! Other programs' checkpoints. DeepSpeed's are converted to universal ones: each parameter
//! whole, with its moments, in its own folder. PyTorch's distributed checkpoint and safetensors
//! are read and written as lists of tensors.
//!
//! In a checkpoint of ZeRO, each rank's file has one slice of a long flat buffer. The file also
//! has the list of parameters that the slice has elements of, each with the offset and length of
//! its elements. A converter cuts these *fragments* out, puts each parameter together from the
//! fragments of all ranks, and joins the parts of tensor parallelism.
//!
//! Reading order, in which nothing uses what comes after it: `options.rs` (what is asked for),
//! `report.rs` (what is found), `workers.rs`, `folder.rs` (the result's), [`torch`] (PyTorch's
//! files), [`tensors`] (a checkpoint as a list), `dcp/` and [`checkpoint`] (its formats),
//! `know/` (what DeepSpeed's records mean), `read/` (the files of a checkpoint), `doubt/`
//! (whether they say the truth), `write/` (the files of the result), `convert.rs` (all
//! together). `example.rs` writes files as DeepSpeed does, for labs and for the tests in
//! `tests/`.

pub mod checkpoint;
mod convert;
mod dcp;
mod doubt;
pub mod example;
mod folder;
mod know;
mod options;
mod read;
mod report;
pub mod tensors;
#[cfg(test)]
mod tests;
pub mod torch;
mod workers;
mod write;

pub use convert::convert;
pub use know::paddings;
pub use options::{Options, Watch};
pub use report::Report;

use shardlab::error::BadInput;
use std::path::Path;

/// The tensors of a parameter's state: the value, and the moments of Adam.
pub const STATES: [&str; 3] = ["fp32", "exp_avg", "exp_avg_sq"];

/// Help for a checkpoint that lacks something, or contradicts itself.
const INCOMPLETE: &str =
    "convert a checkpoint that is complete: the files of all ranks, from the same save";

/// Help for files of more ranks than the newest save's.
const LEFT_OVER: &str = "if an earlier save of more ranks has left files here, delete them; else convert a checkpoint that is \
                         complete: the files of all ranks, from the same save";

fn broken(path: &Path, how: impl std::fmt::Display) -> BadInput {
    BadInput::new(format!("{} cannot be converted: {how}", path.display()), INCOMPLETE)
}
