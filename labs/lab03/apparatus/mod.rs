//! The training around lab03's step.
//!
//! Reading order: `settings.rs` (what defines the run), `serial.rs` (the ranks beside one rank that
//! does all the work), `broken.rs` (a piece left out), `training.rs` (the training, watched),
//! `speedup.rs` (the ranks' speed beside one rank's).

pub mod broken;
pub mod serial;
pub mod settings;
pub mod speedup;
pub mod training;
