//! lab08-scaler · The loss scale of Megatron-LM

use shardlab::train::global_norm;

/// A loss scale, and what the rule counts.
#[derive(Clone, Debug)]
pub struct Scaler {
    pub scale: f64,
    /// The scale never falls below it.
    pub min: f64,
    /// How many good steps it takes to grow.
    pub window: u64,
    /// How many overflows it takes to shrink.
    pub hysteresis: u64,
    /// For `step` to count good steps.
    pub good: u64,
    /// For `step` to count overflows.
    pub remaining: u64,
}

impl Scaler {
    /// A scaler at the beginning of a run.
    pub fn new(scale: f64, min: f64, window: u64, hysteresis: u64) -> Scaler {
        Scaler {
            scale,
            min,
            window,
            hysteresis,
            good: 0,
            remaining: hysteresis,
        }
    }

    /// Ends a training step. `gradients` are scaled. Returns None if the optimizer must not use
    /// them, else the norm for the log.
    pub fn step(&mut self, gradients: &mut [f32], clip: f64) -> Option<f64> {
        // The gradients have this step's scale, and the update may change it.
        let scale = self.scale;
        let norm = global_norm(gradients) / scale;
        self.update(!norm.is_finite());
        if !norm.is_finite() {
            return None;
        }
        let factor = (clip / norm).min(1.0) / scale;
        for g in gradients {
            *g = (f64::from(*g) * factor) as f32;
        }
        Some(norm)
    }

    /// Updates the scale after a step.
    fn update(&mut self, overflow: bool) {
        if overflow {
            self.good = 0;
            self.remaining = self.remaining.saturating_sub(1);
            if self.remaining == 0 {
                self.scale = (self.scale / 2.0).max(self.min);
            }
            return;
        }
        self.good += 1;
        if self.good == self.window {
            self.good = 0;
            self.scale *= 2.0;
            self.remaining = self.hysteresis;
        }
    }
}
