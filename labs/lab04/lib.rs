//! lab04 · Who holds what: ZeRO's stages, side by side.
//!
//! Reading order: `lesson.rs` (the first stage by hand, and the library's beside it), `run.rs`
//! (what a rank does in this lab, and the checks), `flags.rs`, `apparatus/` (trains, measures,
//! computes and draws the stages), and `prediction.rs` (what a reader is asked before).

mod apparatus;
pub mod flags;
pub mod lesson;
mod prediction;
mod run;

pub use apparatus::{Job, Measured, compared, computed_step, restored, timeline, title};
pub use flags::Args;
pub use prediction::prediction;
pub use run::run;
