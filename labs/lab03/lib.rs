//! lab03 · One model, many ranks: data-parallel training of a character-level GPT.
//!
//! Reading order: `lesson.rs` (one step, and the library's beside it), `run.rs` (what a rank does
//! in this lab, and the checks), `flags.rs`, `apparatus/` (the training, watched, and its
//! comparison with one rank), and `prediction.rs` (what a reader is asked before).

mod apparatus;
pub mod flags;
pub mod lesson;
mod prediction;
mod run;

pub use flags::Args;
pub use prediction::prediction;
pub use run::run;
