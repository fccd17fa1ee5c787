//! The search for the best strategy, beside the source's rules.
//!
//! Reading order:
//!
//! - `names.rs`, `sizes.rs`, `config.rs`, `own.rs`: the model of a job, published or one's own
//! - `file.rs`: a reader's own cluster, in TOML
//! - `check.rs`: whether a job can use a strategy; `search.rs`: all strategies of a job, ranked
//! - `rules.rs`: the decision path of the source
//! - `published.rs`: runs whose figures were published; `accuracy.rs`: what they say about
//!   predictions

mod accuracy;
mod check;
mod config;
mod file;
mod names;
mod own;
pub mod published;
mod rules;
mod search;
mod sizes;

pub use super::strategy::Plan;
pub use accuracy::{Accuracy, Errors, HeldOut, PlanKind, compared, errors_of, held_out};
pub use check::{Refusal, RefusalKind, fits, refusals, too_large};
pub use file::{EXAMPLE, read as read_cluster};
pub use names::{LONGEST, MODELS, model};
pub use own::described;
pub use published::Made;
pub use rules::{Decision, Step, decide};
pub use search::{Search, search};
pub use sizes::{Described, Sizes};
