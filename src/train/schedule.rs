//! The learning rate: a linear warm-up, followed by a cosine down to a minimum.

/// The learning rate of each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrSchedule {
    /// The rate at the end of the warm-up.
    pub lr: f64,
    /// The rate from step `decay_steps` on.
    pub min_lr: f64,
    pub warmup: usize,
    /// The step at which the cosine has reached `min_lr`.
    pub decay_steps: usize,
}

impl LrSchedule {
    /// The same learning rate in every step.
    pub fn constant(lr: f64) -> LrSchedule {
        LrSchedule { lr, min_lr: lr, warmup: 0, decay_steps: 1 }
    }

    /// The rate of step `step`, counted from 0.
    pub fn at(&self, step: usize) -> f64 {
        if step < self.warmup {
            return self.lr * (step + 1) as f64 / self.warmup as f64;
        }
        let decay = self.decay_steps.saturating_sub(self.warmup).max(1) as f64;
        let progress = ((step - self.warmup) as f64 / decay).min(1.0);
        self.min_lr
            + 0.5 * (self.lr - self.min_lr) * (1.0 + (std::f64::consts::PI * progress).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_falls_and_stays() {
        let schedule = LrSchedule { lr: 1e-3, min_lr: 1e-4, warmup: 100, decay_steps: 500 };
        let near = |step, lr: f64| {
            assert!((schedule.at(step) - lr).abs() < 1e-12, "{step}: {}", schedule.at(step))
        };
        near(0, 1e-5);
        near(49, 5e-4);
        near(99, 1e-3);
        near(100, 1e-3);
        near(300, 5.5e-4);
        near(500, 1e-4);
        near(10_000, 1e-4);
    }

    #[test]
    fn extremes_are_finite() {
        for (warmup, decay_steps) in [(0, 0), (0, 1), (10, 0), (5, 5)] {
            let schedule = LrSchedule { lr: 1.0, min_lr: 0.1, warmup, decay_steps };
            assert!((0..20).all(|step| (0.1..=1.0).contains(&schedule.at(step))), "{schedule:?}");
        }
    }
}
