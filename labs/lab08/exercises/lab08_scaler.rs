//! lab08-scaler · The loss scale of Megatron-LM
//!
//! In fp16 small gradients become 0, so the loss is multiplied by a scale, and all gradients with it. If the scale is too
//! large, a gradient overflows: it is infinite or NaN. The step is not taken then. Megatron-LM updates the scale after every
//! step:
//!
//! - An overflow takes 1 off `remaining`, down to 0. With 0 left, the scale is halved: by this overflow, and by every
//!   further one. It never falls below `min`.
//! - After `window` good steps in a row the scale doubles, and `remaining` is `hysteresis` again. Nothing else restores
//!   `remaining`.
//! - An overflow begins the count of good steps again. So does a scale that has grown.
//!
//! The check looks at the scale first, and then at the gradients.

use shardlab::train::global_norm;

/// A loss scale, and what the rule counts.
#[derive(Clone, Debug)]
pub struct Scaler {
    pub scale: f64,
    /// The scale never falls below it.
    pub min: f64,
    /// Good steps in a row before the scale grows.
    pub window: u64,
    /// Overflows before the scale shrinks.
    pub hysteresis: u64,
    /// Good steps since the last overflow, or since the scale grew.
    pub good: u64,
    /// Overflows that remain until the scale shrinks.
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

    /// Ends a training step. `gradients` are scaled. Returns None if they overflowed: then the optimizer does nothing. If
    /// not, `gradients` are left without the scale, and clipped: if their norm is larger than `clip`, they are shortened to
    /// it. Returns the norm before clipping, for the log. Updates the scale in both cases.
    pub fn step(&mut self, gradients: &mut [f32], clip: f64) -> Option<f64> {
        let norm = global_norm(gradients);
        todo!(
            "a norm of {norm} with the scale {}, to clip at {clip}",
            self.scale
        )
    }
}
