//! The search for the best strategy, beside the source's rules.
//!
//! Reading order: `names.rs` (the model of a job: published ones, and one's own), `config.rs` (a model's config.json), `file.rs` (a reader's own cluster, in TOML), `check.rs` (whether a job can use a strategy), `search.rs` (all strategies of a job,
//! ranked), `rules.rs` (the decision path of the source), `published.rs` (runs whose figures were published), `accuracy.rs` (what they say about predictions).

mod accuracy;
mod check;
mod config;
mod file;
mod names;
pub mod published;
mod rules;
mod search;

pub use crate::strategy::Plan;
pub use accuracy::{Accuracy, Errors, PlanKind, compared, held_out};
pub use check::{Refusal, RefusalKind, fits, refusals, too_large};
pub use file::{EXAMPLE, read as read_cluster};
pub use names::{Described, MODELS, Sizes, described, model};
pub use rules::{Decision, Step, decide};
pub use search::{Search, search};
