//! lab04 · Who holds what: ZeRO's stages, side by side.
//!
//! Reading order: `lesson.rs` (the first stage by hand, and the library's beside it), `run.rs`
//! (what a rank does in this lab, and the checks), `flags.rs`, `questions.rs` (what it asks), and
//! `apparatus/` (trains, measures, computes and draws the stages).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::{Job, Measured, compared, computed_step, restored, timeline, title};
pub use flags::Args;
pub use questions::QUESTIONS;
pub use run::run;
