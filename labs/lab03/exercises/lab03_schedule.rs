//! lab03-schedule · Warm-up, then half a cosine
//!
//! The learning rate of lab03's steps, counted from 0. It has three phases:
//!
//! - The warm-up is the first `warmup` steps. The rate rises by the same amount every step, from lr
//!   / warmup at step 0 to lr at the last one. (Adam knows little about the gradients' sizes yet,
//!   and long steps now can ruin a model.)
//! - The decay goes from step `warmup` to step `decay_steps`: half a cosine, from lr down to
//!   min_lr.
//! - From there on the rate stays at min_lr, for as long as the run goes on.
//!
//! ```text
//! lr 0.001, min_lr 0.0001, warmup 4, decay_steps 10
//!
//! step         0        1        2        3      4       7       10      11
//! rate   0.00025  0.00050  0.00075  0.00100  0.00100  0.00055  0.00010  0.00010
//! ```

/// The schedule's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub lr: f64,
    pub min_lr: f64,
    /// Steps of the warm-up. With 0 there is none.
    pub warmup: usize,
    /// The step at which the rate has come down to `min_lr`.
    pub decay_steps: usize,
}

/// The learning rate of step `step`.
pub fn learning_rate(schedule: &Schedule, step: usize) -> f64 {
    let Schedule { lr, min_lr, warmup, decay_steps } = *schedule;
    todo!("between {min_lr} and {lr} at step {step}: warm-up to {warmup}, decay to {decay_steps}")
}
