//! What a strategy costs, the search beside the source's rules, and what both print.
//!
//! Reading order:
//!
//! - `strategy/`: what a strategy costs; `planner/`: the search
//! - `report.rs`: the default screen; `detail.rs`: one plan in detail; `likely.rs`: what
//!   predictions probably come to
//! - `presets.rs`: names and sources; `compared.rs`: the planner beside published runs; `json.rs`:
//!   the same for tools
//! - `ledger.rs`: the job in the order of the book's pages

mod compared;
mod detail;
mod json;
mod ledger;
pub mod likely;
pub mod planner;
mod presets;
mod report;
pub mod strategy;

pub use compared::{check_published, published, scatter};
pub use detail::detail;
pub use json::json;
pub use ledger::ledger;
pub use presets::presets;
pub use report::{Found, ending, job, memory, ranking, rules, time};
