//! labNN · TITLE: TODO: which question, in one line?
//!
//! Reading order: `lesson.rs` (the idea), `run.rs` (what the lab runs, and its checks), `flags.rs`,
//! and `questions.rs` (what it asks).

pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use flags::Args;
pub use questions::QUESTIONS;
pub use run::run;
