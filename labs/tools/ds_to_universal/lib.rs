//! DeepSpeed's checkpoints, converted to universal ones: each parameter whole, with its moments, in
//! its own folder.
//!
//! In a checkpoint of ZeRO, each rank's file has one slice of a long flat buffer. The file also has
//! the list of parameters that the slice has elements of, each with the offset and length of its
//! elements. A converter cuts these *fragments* out, puts each parameter together from the
//! fragments of all ranks, and joins the parts of tensor parallelism.
//!
//! Reading order: `options.rs` (what is asked for), `names.rs` (which file is whose), `model.rs` (a
//! file of model states), `shard.rs` (a rank's slice, with `json.rs`), `source.rs` (all files),
//! `layout.rs` and `parameters.rs` (which elements are whose), `weights.rs` (the model's own
//! weights as a check), `evidence.rs` (whether each file is its rank's), `repair.rs` (records that
//! are wrong), `rules.rs`, `affine.rs`, `part.rs` and `merge.rs` (parts of tensor parallelism),
//! `output.rs` (files of the result), `earlier.rs` (what it may replace), `whole.rs` (one
//! parameter), `common.rs` (what all ranks share), `workers.rs`, `report.rs` (what was found),
//! `convert.rs` (all together). `torch/` reads and writes PyTorch's files. `example.rs` writes
//! files as DeepSpeed does, for labs and for the tests in `tests/`.

mod affine;
mod common;
mod convert;
mod earlier;
mod evidence;
pub mod example;
mod json;
mod layout;
mod merge;
mod model;
mod names;
mod options;
mod output;
mod parameters;
mod part;
mod repair;
mod report;
mod rules;
mod shard;
mod source;
#[cfg(test)]
mod tests;
pub mod torch;
mod weights;
mod whole;
mod workers;

pub use convert::convert;
pub use earlier::MANIFEST;
pub use layout::paddings;
pub use options::{Format, Options, Watch};
pub use report::{NotFinite, Refusal, Report};

use shardlab::error::BadInput;
use std::path::Path;

/// The tensors of a parameter's state: the value, and the moments of Adam.
pub const STATES: [&str; 3] = ["fp32", "exp_avg", "exp_avg_sq"];

/// Help for a checkpoint that lacks something, or contradicts itself.
const INCOMPLETE: &str =
    "convert a checkpoint that is complete: the files of all ranks, from the same save";

fn broken(path: &Path, how: impl std::fmt::Display) -> BadInput {
    BadInput::new(format!("{} cannot be converted: {how}", path.display()), INCOMPLETE)
}
