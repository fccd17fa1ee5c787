//! labNN · TITLE: TODO: which question, in one line?
//!
//! Reading order: `lesson.rs` (the idea), `run.rs` (what the lab runs, and its checks), `flags.rs`,
//! and `prediction.rs` (what a reader is asked before).

pub mod flags;
pub mod lesson;
mod prediction;
mod run;

pub use flags::Args;
pub use prediction::prediction;
pub use run::run;
