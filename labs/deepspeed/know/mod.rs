//! What DeepSpeed's records mean, without any file of a checkpoint.
//!
//! Reading order: `keys.rs` (which entries are known), `layout.rs` (which elements of a flat buffer
//! are whose), `part.rs` (a tensor in memory), `rules.rs` and `affine.rs` (how the parts of tensor
//! parallelism belong together), `merge.rs` (joins them).

mod affine;
mod keys;
mod layout;
mod merge;
mod part;
mod rules;

pub(crate) use keys::{SHARD, unknown, unknown_of_model};
pub use layout::paddings;
pub(crate) use layout::{Shapes, by_turns, fragments};
pub(crate) use merge::{join, resolve};
pub(crate) use part::Part;
pub(crate) use rules::{Inner, Rule, Rules, Size};
