//! Three axes of parallelism in one job: who holds what, who talks to whom, and what a log says about it.
//!
//! Reading order: `report.rs` (the lines of a Megatron-LM log), `logged.rs` (a real log's job).

pub mod logged;
mod report;

pub use report::{Iteration, Job, MEGABYTE, Memory, folded, times};
