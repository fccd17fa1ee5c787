//! lab01 · Collectives, taken apart: what each does, what it costs, and what if a rank is missing?
//!
//! Reading order: `lesson.rs` (the plainest all-reduce), `run.rs` (what the lab shows in which
//! order, and its checks), `flags.rs`, `questions.rs` (what it asks), and `apparatus/` (what draws,
//! counts, measures, predicts and breaks).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::{Fed, Feed, Formula, Store, Way, formula};
pub use apparatus::{benchmark, breaking, by_algorithm, counts, feeding, picture, predict};
pub use flags::{Args, Study, StudyFlags};
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
