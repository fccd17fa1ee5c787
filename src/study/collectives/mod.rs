//! Collectives looked at: what they do, what they cost, how long they take here, and how long they would elsewhere.
//!
//! Reading order:
//! - `flags.rs`: what is to be looked at
//! - `call.rs`: any collective by any algorithm, in one form
//! - `picture.rs`: before and after, and step by step
//! - `counts.rs`: messages and bytes, measured beside the formulas
//! - `benchmark.rs`: times here, and the line through them
//! - `predict.rs`: times on a network that is not here
//! - `feeding.rs`: how long ranks wait for their batches
//! - `breaking.rs`: what happens when ranks do not do the same

pub mod benchmark;
pub mod breaking;
mod call;
pub mod counts;
pub mod feeding;
mod flags;
pub mod picture;
pub mod predict;

pub use call::Way;
pub use flags::{Study, StudyFlags};
