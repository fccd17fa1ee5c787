//! lab03 · One model, many ranks: data-parallel training of a character-level GPT.
//!
//! Reading order: `lesson.rs` (one step, and the library's beside it), `run.rs` (what a rank does
//! in this lab, and the checks), `flags.rs`, `questions.rs` (what it asks), and `apparatus/` (what
//! is said first, a piece left out, the bytes that a step should send, and the speed-up).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use flags::Args;
pub use questions::QUESTIONS;
pub use run::run;
