//! The training around lab03's step.
//!
//! Reading order: `serial.rs` (the ranks beside one rank that does all the work), `training.rs`
//! (the training, watched).

pub mod serial;
pub mod training;
