//! lab01's study of collectives: the effect, the cost, the time here, and the time on a network that is not here.
//!
//! Reading order:
//! - `flags.rs`: the flags, checked
//! - `call.rs`: any collective by any algorithm, in one form
//! - `picture.rs`: before and after, and round by round
//! - `counts.rs`: messages and bytes, measured beside the formulas
//! - `benchmark.rs`: times, measured here
//! - `predict.rs`: times on a network that is not here
//! - `feeding.rs`: how long ranks wait for their batches
//! - `breaking.rs`: ranks that do not do the same

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
pub use kit;
