//! lab11 · Deciding on a strategy: every combination of degrees that divides a model evenly, on
//! any cluster.
//!
//! All labs before this one measured one strategy each. This lab computes: it knows what each
//! strategy holds, sends and waits for. The source of this workbook decides by rules. The lab walks
//! them, too, and says where both agree.
//!
//! Reading order: `lesson.rs` (a planner in its plainest form), `run.rs` (what the lab prints, and
//! its checks), `flags.rs` (the job), `questions.rs` (what it asks), and `apparatus/` (what it
//! prints of the package `planner`: of what a strategy costs, and of the search).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::{Found, job, likely, ranking, rules, scatter};
pub use flags::Args;
pub use kit;
pub use planner;
pub use questions::QUESTIONS;
pub use run::run;
