//! `lab03-schedule`: the learning rate of a step.

use shardlab::train::LrSchedule;

/// The schedule's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    pub lr: f64,
    pub min_lr: f64,
    /// Steps of the warm-up.
    pub warmup: usize,
    /// The step at which the rate has come down to `min_lr`.
    pub decay_steps: usize,
}

pub type LearningRate = fn(&Schedule, usize) -> f64;

pub fn library(schedule: &Schedule, step: usize) -> f64 {
    let Schedule { lr, min_lr, warmup, decay_steps } = *schedule;
    LrSchedule { lr, min_lr, warmup, decay_steps }.at(step)
}

/// One rate for all steps.
pub fn without(schedule: &Schedule, _step: usize) -> f64 {
    schedule.lr
}
