//! Training: the definition of a step, and its outcome.
//!
//! Reading order: `training.rs` (a training, and its step), `schedule.rs`, `config.rs`,
//! `evaluate.rs` and `diverged.rs` (its settings and its outcome); `scaler.rs`,
//! `skip.rs`, `counters.rs` and `skipping.rs` (steps that are not taken); `replicas.rs` (do all
//! ranks still hold one model?).

mod config;
mod counters;
mod diverged;
mod evaluate;
mod replicas;
mod scaler;
mod schedule;
mod skip;
mod skipping;
mod training;

pub use crate::optim::{AdamW, AdamWConfig, clip_scale, global_norm};
pub use config::Config;
pub use counters::{Counters, StepSize};
pub use diverged::Diverged;
pub use evaluate::evaluate;
pub use replicas::{all_hashes, distance};
pub use scaler::{
    AtMinimum, LossScaler, ScalerConfig, ScalerRule, Unscaled, emulate_half, round_to_half,
};
pub use schedule::LrSchedule;
pub use skip::{Bound, Plan, Ranges, SkipPolicy, caught};
pub use skipping::{AttemptedStep, Outcome, Record, SkippingTrainer};
pub use training::{ComputedStep, Observer, Setup, StepTimes, TakenStep, Training};
