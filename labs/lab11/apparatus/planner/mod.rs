//! The search for the best strategy, beside the source's rules.
//!
//! Reading order:
//!
//! - `model.rs`: the model of a job, published or one's own
//! - `file.rs`: a reader's own cluster, in TOML
//! - `check.rs`: whether a job can use a strategy; `search.rs`: all strategies of a job, ranked
//! - `rules.rs`: the decision path of the source
//! - `published.rs`: runs whose figures were published; `accuracy.rs`: what they say about
//!   predictions

mod accuracy;
mod check;
mod file;
mod model;
pub mod published;
mod rules;
mod search;

pub use super::strategy::Plan;
pub use accuracy::{Accuracy, Errors, HeldOut, PlanKind, compared, errors_of, held_out};
pub use check::{Refusal, explained, fits, refusal, too_large};
pub use file::{EXAMPLE, read as read_cluster};
pub use model::{ModelOfJob, model, models};
pub use published::Made;
pub use rules::{Decision, Step, decide};
pub use search::{Search, search};
