//! Do all ranks train what one rank would? The checks at a lab's end.
//!
//! Reading order: `parity.rs` (a step on all ranks and on one), `steady.rs` (which steps can be
//! compared), `symptoms.rs` (what a mistake changes), `lab_checks.rs` (prints the checks, and keeps
//! what failed), `beside.rs` (the lesson's version and the library's), `evaluator.rs` (the loss of
//! text that was not trained on).

mod beside;
mod evaluator;
mod lab_checks;
pub mod parity;
pub mod steady;
mod symptoms;

pub use beside::Beside;
pub use evaluator::Evaluator;
pub use lab_checks::{Checks, End, short_hash};
pub use symptoms::{Break, Symptoms};
