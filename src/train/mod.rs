//! Training: the definition of a step, and its outcome.
//!
//! Reading order: `training.rs` (a training, and its step), `schedule.rs`, `config.rs`,
//! `evaluate.rs` and `diverged.rs` (its settings and its outcome); `replicas.rs` (do all ranks
//! still hold one model?).

mod config;
mod diverged;
mod evaluate;
mod replicas;
mod schedule;
mod training;

pub use crate::optim::{AdamW, AdamWConfig, clip_scale, global_norm};
pub use config::Config;
pub use diverged::Diverged;
pub use evaluate::evaluate;
pub use replicas::all_hashes;
pub use schedule::LrSchedule;
pub use training::{ComputedStep, MicroBatch, Observer, Setup, StepTimes, TakenStep, Training};
