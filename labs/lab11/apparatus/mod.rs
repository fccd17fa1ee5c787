//! What lab11 prints of the planner: what a strategy costs, the search, the source's rules.
//!
//! Reading order:
//!
//! - `model.rs`: the flags of a model
//! - `report.rs`: the default screen; `detail.rs`: one plan in detail; `likely.rs`: what
//!   predictions probably come to
//! - `counts.rs`: a model that is counted and not planned
//! - `presets.rs`: names and sources; `compared.rs`: the planner beside published runs; `json.rs`:
//!   the same for tools
//! - `ledger.rs`: the job in the order of the book's pages

mod compared;
mod counts;
mod detail;
mod json;
mod ledger;
pub mod likely;
mod model;
mod presets;
mod report;

pub use compared::{check_published, published, scatter};
pub use counts::{counts, counts_json, no_plans};
pub use detail::detail;
pub use json::json;
pub use ledger::ledger;
pub use model::ModelOfJob;
pub use presets::presets;
pub use report::{Found, ending, job, memory, ranking, rules, time};
