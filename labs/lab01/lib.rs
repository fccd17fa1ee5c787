//! lab01 · Collectives, taken apart: what each does, what it costs, and what if a rank is missing?
//!
//! Reading order: `lesson.rs` (the plainest all-reduce), `run.rs` (what the lab shows in which
//! order, and its checks), `flags.rs`, `apparatus/` (what draws, counts, measures, predicts and
//! breaks), and `prediction.rs` (what a reader is asked before).

mod apparatus;
pub mod flags;
pub mod lesson;
mod prediction;
mod run;

pub use apparatus::{Fed, Feed, Formula, Store, Way, formula};
pub use apparatus::{benchmark, breaking, by_algorithm, counts, feeding, picture, predict};
pub use flags::{Args, Study, StudyFlags};
pub use kit;
pub use prediction::prediction;
pub use run::run;
