//! lab03-schedule · Warm-up, then half a cosine
//!
//! The learning rate of lab03's steps, counted from 0. It has three stretches:
//!
//! - warm-up, the first `warmup` steps: it rises by the same amount every step, from lr / warmup at step 0 to lr at the
//!   last. Step 0 already learns. (Adam knows little about a gradient's size yet; long steps now can ruin a model.)
//! - decay, from step `warmup` to step `decay_steps`: half a cosine, from lr down to min_lr
//! - and from there on it stays at min_lr, for as long as the run goes on

/// The schedule's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub lr: f64,
    pub min_lr: f64,
    /// Steps of warm-up; 0: none.
    pub warmup: usize,
    /// The step at which the rate has come down to `min_lr`.
    pub decay_steps: usize,
}

/// The learning rate of step `step`.
pub fn learning_rate(schedule: &Schedule, step: usize) -> f64 {
    let Schedule { lr, min_lr, warmup, decay_steps } = *schedule;
    todo!("between {min_lr} and {lr} at step {step}: warm-up to {warmup}, decay to {decay_steps}")
}
