//! The files of a checkpoint, read except for their numbers.
//!
//! Reading order: `names.rs` (which file is whose), `model.rs` (a file of model states), `shard.rs`
//! (a rank's slice), `source.rs` (all files together), `parameters.rs` (which files have the
//! elements of which parameter), `rest.rs` (the model's tensors that the optimizer does not have),
//! `folder.rs` (what a folder is that has no such files).

mod folder;
mod model;
mod names;
mod parameters;
mod rest;
mod shard;
mod source;

pub(crate) use model::ensure_name;
pub(crate) use parameters::{Parameter, Slice};
pub(crate) use rest::{Pieces, Rest, Whole};
pub(crate) use shard::{Group, Shard, Step};
pub(crate) use source::Source;
