//! The training around lab03's step.
//!
//! Reading order: `lab.rs` (what the ranks share, and what is said first), `settings.rs` (what
//! defines the run), `broken.rs` (a piece left out), `sent.rs` (the bytes that a step should send),
//! `speedup.rs` (the ranks' speed beside one rank's).

pub mod broken;
mod lab;
pub mod sent;
mod settings;
pub mod speedup;

pub use lab::{Lab, introduce};
