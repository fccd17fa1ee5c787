//! What a strategy costs, the search beside the source's rules, and what both print.
//!
//! Reading order:
//!
//! - `strategy/`: what a strategy costs; `planner/`: the search
//! - `report.rs`: the default screen; `detail.rs`: one plan in detail; `likely.rs`: what
//!   predictions probably come to
//! - `presets.rs`: names and sources; `compared.rs`: the planner beside published runs; `json.rs`:
//!   the same for tools
//! - `ledger/`: the job in the order of the book's pages
//! - `trained.rs`: a short training, and the planner's figures for it
//! - `calibrate.rs`: this machine as a cluster, and trainings beside their predictions

mod calibrate;
mod compared;
mod detail;
mod json;
mod ledger;
pub mod likely;
pub mod planner;
mod presets;
mod report;
pub mod strategy;
mod trained;

pub use calibrate::calibrate;
pub use compared::{check_published, published};
pub use detail::{cannot_use, detail};
pub use json::{json, plan_json};
pub use ledger::ledger;
pub use presets::presets;
pub use report::{
    Found, ending, job, memory, not_read, ranking, refusals, refused, rules, sensitivity, time,
    unranked,
};
pub use trained::{Held, Trained, Training};
