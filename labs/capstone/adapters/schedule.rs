//! lab03-schedule as a part of the trainer.

pub fn take(parts: &mut capstone::Parts) {
    parts.schedule = |schedule, step| {
        let schedule = lab03_schedule::Schedule {
            lr: schedule.lr,
            min_lr: schedule.min_lr,
            warmup: schedule.warmup,
            decay_steps: schedule.decay_steps,
        };
        lab03_schedule::learning_rate(&schedule, step)
    };
}
