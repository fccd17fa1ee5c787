//! Pipeline parallelism: the layers are divided into stages, and micro-batches travel from stage to
//! stage.
//!
//! A schedule is one list of operations per rank. The same list is checked, simulated and drawn,
//! and trains the model.
//!
//! Reading order: [`schedule`] (which operation when; with [`Partition`], the layers of each
//! stage, it lies in the package `shapes`), `simulate.rs` (how long it takes, and what waits for
//! what), `run.rs` (the list trains the model).

mod run;
pub mod simulate;

pub use run::{Pace, PassRecord, Stages, StepRecord};
pub use shapes::strategy::Partition;
pub use shapes::strategy::schedule::{self, Instruction, Op, Pipeline, Schedule, Work};
pub use simulate::{Deadlock, Simulated, Times, peak, simulate, simulate_with};
