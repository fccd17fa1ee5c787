//! Training: the learning rate, the loop's parts.
//!
//! Reading order: `schedule.rs`, `evaluate.rs`; `replicas.rs`, `symptoms.rs`, `checks.rs` and `parity.rs` (is it
//! still one model?); `config.rs`, `preset.rs`, `flags.rs` and `zero_flags.rs` (what a run is), `journal.rs`, `metrics.rs` and `report.rs`
//! (what it tells), `trace.rs` (for a viewer).

mod checks;
mod config;
mod evaluate;
mod flags;
mod journal;
mod metrics;
pub mod parity;
mod preset;
mod replicas;
pub mod report;
mod schedule;
mod symptoms;
pub(crate) mod trace;
mod zero_flags;

pub use crate::optim::{AdamW, AdamWConfig, clip_scale, global_norm};
pub use checks::Checks;
pub use config::Config;
pub use evaluate::evaluate;
pub use flags::{RunFlags, TrainFlags};
pub use journal::{Evaluation, Journal, StepOutcome};
pub use metrics::{Clock, LEGEND, Lap, MetricsFile, Part, StepRecord, StepTimes};
pub use preset::Preset;
pub use replicas::{all_hashes, distance};
pub use schedule::Schedule;
pub use symptoms::{Break, Symptoms};
pub use zero_flags::ZeroFlags;
