//! lab00 · Ranks: who am I, where am I, and how was this job started?
//!
//! Reading order: `lesson.rs` (the ring), `run.rs` (what a rank does in this lab, and the checks),
//! `flags.rs`, `job/` (the job as a cluster describes it), `apparatus/` (what it draws), and
//! `prediction.rs` (what a reader is asked before).

mod apparatus;
pub mod flags;
pub mod job;
pub mod lesson;
mod prediction;
mod run;

pub use flags::Args;
pub use prediction::prediction;
pub use run::run;
