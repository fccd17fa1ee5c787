//! lab03-schedule · Warm-up, then half a cosine

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
    if step < warmup {
        return lr * (step + 1) as f64 / warmup as f64;
    }
    if step >= decay_steps {
        return min_lr;
    }
    let progress = (step - warmup) as f64 / (decay_steps - warmup) as f64;
    min_lr + 0.5 * (lr - min_lr) * (1.0 + (std::f64::consts::PI * progress).cos())
}
