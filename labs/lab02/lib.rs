//! lab02 · The smallest training job: data parallelism on five linear layers.
//!
//! It is useless on purpose: an iteration takes milliseconds, so you can see where they go. The lab
//! rebuilds the `test_dist` that supercomputer users run first, to learn whether their ranks find
//! each other.
//!
//! Reading order: `lesson.rs` (the job in plain candle), `run.rs` (what the lab runs in which
//! order, and its checks), `flags.rs`, `questions.rs` (what it asks), and `apparatus/` (the
//! library's version, timed; what it draws).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::training::iterate;
pub use apparatus::tree;
pub use apparatus::{IterRecord, Iterations, MlpConfig, Profile, Stamps};
pub use flags::{Args, MlpFlags};
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
