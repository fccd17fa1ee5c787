//! Training: the optimizer, the learning rate, the loop's parts.
//!
//! Reading order: `schedule.rs`, `adamw.rs`, `evaluate.rs`; `replicas.rs`, `symptoms.rs` and `parity.rs` (is it still one model?);
//! `flags.rs` (what a run is), `journal.rs`, `metrics.rs`, `report.rs` (what it tells).

mod adamw;
mod evaluate;
mod flags;
mod journal;
mod metrics;
pub mod parity;
mod replicas;
pub mod report;
mod schedule;
mod symptoms;

pub use adamw::{AdamW, AdamWConfig, clip_scale, global_norm};
pub use evaluate::evaluate;
pub use flags::{Config, Preset, TrainFlags};
pub use journal::{Evaluation, Journal};
pub use metrics::{Clock, LEGEND, MetricsFile, StepRecord, StepTimes};
pub use replicas::{all_hashes, distance};
pub use schedule::Schedule;
pub use symptoms::Symptoms;
