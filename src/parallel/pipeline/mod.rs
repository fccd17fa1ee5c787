//! Pipeline parallelism: the layers are divided into stages, and micro-batches travel from stage to
//! stage.
//!
//! A schedule is one list of operations per rank. The same list is checked, simulated and drawn,
//! and trains the model.
//!
//! Reading order: `schedule.rs` (which operation when), `simulate.rs` (how long it takes, and what
//! waits for what), `partition.rs` (the layers of each stage), `run.rs` (the list trains the
//! model).

mod partition;
mod run;
pub mod schedule;
pub mod simulate;

pub use partition::Partition;
pub use run::{Pace, PassRecord, Stages, StepRecord};
pub use schedule::{Instruction, Op, Pipeline, Schedule, Work};
pub use simulate::{Deadlock, Simulated, Times, peak, simulate, simulate_with};
