//! The files of a checkpoint, read except for their numbers.
//!
//! Reading order: `kind.rs` (what a file is, by its name), `folder.rs` (what a folder is that has
//! no optimizer states), `names.rs` (all files of a folder), `model.rs` (a file of model states),
//! `shard.rs` (a rank's slice), `source.rs` (all files together), `parameters.rs` (which files have
//! the elements of which parameter), `rest.rs` (what the optimizer does not have).

mod folder;
mod kind;
mod model;
mod names;
mod parameters;
mod rest;
mod shard;
mod source;

pub(crate) use model::{ensure_name, need};
pub(crate) use parameters::{Parameter, Slice};
pub(crate) use rest::{Pieces, Rest, Whole};
pub(crate) use shard::{Group, Shard, Step, optimizer};
pub(crate) use source::Source;
