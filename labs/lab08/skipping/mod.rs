//! A training whose steps may be skipped because of their data, or refused because gradients
//! overflowed.
//!
//! Reading order: `skip.rs` (which steps are skipped), `counters.rs` (what a step counts,
//! taken or not), `scaler.rs` (a loss scale, and gradients in fp16), `trainer.rs` (a training with
//! all of them).

mod counters;
mod scaler;
mod skip;
mod trainer;

pub use counters::{Counters, StepSize};
pub use scaler::{
    AtMinimum, LossScaler, ScalerConfig, ScalerRule, Unscaled, emulate_half, round_to_half,
};
pub use skip::{Bound, Plan, Ranges, SkipPolicy, caught};
pub use trainer::{AttemptedStep, Outcome, Record, SkippingTrainer, hash, state_bits};
