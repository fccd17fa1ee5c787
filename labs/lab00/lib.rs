//! lab00 · Ranks: who am I, where am I, and how was this job started?
//!
//! Reading order: `lesson.rs` (the ring), `run.rs` (what a rank does in this lab, and the checks),
//! `flags.rs`, `questions.rs` (what it asks), `job/` (the job as a cluster describes it), and
//! `apparatus/` (what it draws).

mod apparatus;
pub mod flags;
pub mod job;
pub mod lesson;
mod questions;
mod run;

pub use flags::Args;
pub use questions::QUESTIONS;
pub use run::run;
