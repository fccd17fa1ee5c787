//! What surrounds the lesson: who holds what, who talks to whom, and what a log says about it.
//!
//! Reading order: `plan.rs` (what each rank holds and sends), `measured.rs` (what ranks measured,
//! beside the plan and beside one rank), `megatron.rs` (its estimate of the parameters),
//! `report.rs` (the lines of its log), `logged.rs` (a real log's job), `early.rs` (a mistake).

mod early;
pub mod logged;
mod measured;
mod megatron;
mod plan;
mod report;

pub use early::NumberedBackwards;
pub use measured::{Measured, Run, collect, one_rank, traffic};
pub use plan::{Plan, Sent};
pub use report::{Iteration, Job, Memory};
