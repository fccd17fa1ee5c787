//! Universal checkpoints: a training's state without a trace of the ranks that saved it, for any
//! number of ranks to continue from.
//!
//! A rank's file has slices whose ends depend on the number of ranks and on how they share the
//! model. A universal checkpoint has each parameter whole, in its own folder, with its moments. A
//! rank that loads it takes the elements that it needs.
//!
//! Reading order: `folder.rs` (the files of a universal checkpoint), `merge.rs` (from the ranks'
//! files to whole parameters), `restore.rs` (from whole parameters to the ranks of a new job).

mod folder;
mod merge;
mod restore;

pub use folder::{INDEX, Parameter, STATES, Universal};
pub use merge::{Slice, merge, slices};
