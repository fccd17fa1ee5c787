//! The search for the best strategy, beside the source's rules.
//!
//! Reading order: `names.rs` (published models), `file.rs` (a reader's own cluster, in TOML), `check.rs` (whether a job can use a strategy), `search.rs` (all strategies of a job,
//! ranked), `rules.rs` (the decision path of the source), `published.rs` (jobs whose figures papers state).

mod check;
mod file;
mod names;
pub mod published;
mod rules;
mod search;

pub use check::{Refusal, RefusalKind, refusals, too_large};
pub use file::{EXAMPLE, read as read_cluster};
pub use names::{MODELS, model};
pub use rules::{Decision, Step, decide};
pub use search::{Plan, Search, search};
