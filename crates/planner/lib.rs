//! What a strategy costs, and the search for the best one.
//!
//! Arithmetic alone: no tensors, no ranks, no screens. Every formula has its source beside it.
//! Reading order:
//!
//! - `job.rs`: a model to train, and on what; `models.rs`: models with names
//! - `counts/`: the parameters of models with experts or layers of several kinds
//! - `networks.rs` and `device.rs`: devices on their network; `cluster_file.rs`: a reader's own, in
//!   TOML; `collective.rs`: the time of an all-gather or a reduce-scatter there, from the links'
//!   formulas in `shapes`
//! - `degrees.rs`: a strategy, and how it is written; `program.rs`: what differs between the
//!   programs that run it
//! - `memory.rs`: all bytes of a rank
//! - `traffic.rs`: the bytes on each axis, and their time; `step.rs`: the time of a step;
//!   `plan.rs`: a strategy with both; `training.rs`: tokens per second, MFU and days
//! - `check.rs`: whether a job can use a strategy; `search.rs`: all strategies of a job, ranked
//! - `rules.rs`: the decision path of the source
//! - `published.rs`: runs whose figures were published; `accuracy.rs`: what they say about
//!   predictions

mod accuracy;
mod check;
mod cluster_file;
mod collective;
mod counts;
mod degrees;
mod device;
mod job;
mod memory;
mod models;
mod networks;
mod plan;
mod program;
pub mod published;
mod rules;
mod search;
mod step;
mod traffic;
mod training;

pub use accuracy::{Accuracy, Errors, HeldOut, PlanKind, compared, errors_of, held_out};
pub use check::{explained, fits, refusal, too_large};
pub use cluster_file::{EXAMPLE, read as read_cluster};
pub use collective::{RankGroup, bandwidth, gathers, tokens_that_hide};
pub use counts::{Counted, counted};
pub use degrees::{Degrees, MICRO_BATCHES, cell};
pub use device::{Cluster, Device};
pub use job::{Overlap, TrainingJob};
pub use memory::{Load, in_flight};
pub use models::{USUAL_LENGTH, model, models};
pub use networks::{network, networks};
pub use plan::Plan;
pub use program::Program;
pub use published::Made;
pub use rules::{Decision, Step, decide};
pub use search::{Search, search};
pub use shapes::strategy::{Offloaded, Recompute, Stage, Strategy};
pub use step::{Time, layer_flops};
pub use traffic::AxisTraffic;
pub use training::{Cost, TOKENS};
