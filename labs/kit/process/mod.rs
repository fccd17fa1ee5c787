//! How this process was started, and how it ends.
//!
//! Reading order: `commands.rs` (commands as they work where this program was started), `reader.rs`
//! (the folders of someone who works through the labs), `restarts.rs` (how often a job was started
//! again), `mistake.rs` (what it does wrong on purpose), `signals.rs` (a process that is told to
//! end).

pub mod commands;
pub(crate) mod mistake;
pub mod reader;
mod restarts;
pub mod signals;

pub use restarts::{RESTART_COUNT, restart_count};
