//! What a run writes down and shows of itself.
//!
//! Reading order: a step's `clock.rs` (how long its parts take), `metrics.rs` and `trace.rs` (the
//! files of `--metrics` and `--trace`), `records.rs` (its line in the log and in these files); the
//! whole run's `journal.rs` (its steps and plots), `report.rs` (the rows about it), `progress.rs`;
//! and `output.rs` (files that flags name).

mod clock;
mod journal;
mod metrics;
pub mod output;
mod progress;
pub mod records;
pub mod report;
pub mod trace;

pub use clock::{Clock, Lap, Part, StepTimes};
pub use journal::{Evaluation, Journal};
pub use metrics::MetricsFile;
pub use progress::{Steps, progress};
pub use records::{Rates, StepRecord};
