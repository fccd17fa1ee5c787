//! `lab03-schedule`: the learning rate of a step.

pub use shardlab::train::LrSchedule as Schedule;

/// Of the schedule's numbers, and of a step.
pub type LearningRate = fn(&Schedule, usize) -> f64;

pub fn library(schedule: &Schedule, step: usize) -> f64 {
    schedule.at(step)
}

/// One rate for all steps.
pub fn without(schedule: &Schedule, _step: usize) -> f64 {
    schedule.lr
}
