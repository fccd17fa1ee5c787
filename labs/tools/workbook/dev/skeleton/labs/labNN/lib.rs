//! labNN · TITLE: TODO: which question, in one line?
//!
//! Reading order: `lesson.rs` (the idea), `run.rs` (what the lab runs, and its checks) and
//! `flags.rs`.

pub mod flags;
pub mod lesson;
mod prediction;
mod run;

pub use flags::Args;
pub use prediction::prediction;
pub use run::run;
