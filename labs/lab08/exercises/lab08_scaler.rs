//! lab08-scaler · The loss scale of Megatron-LM
//!
//! In fp16 small gradients become 0, so the loss is multiplied by a scale, and all gradients with
//! it. If a gradient overflows, it is infinite or NaN. Write the end of a step. The first table has
//! log2 of the scale after each step, from 2^16 on, with `min` 2^14, `window` 3 and `hysteresis` 2;
//! `x` is a step whose gradients overflow:
//!
//! ```text
//!  step        1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18
//!  gradients   .  .  .  .  x  .  .  x  x  x  x  .  .  .  x  .  .  .
//!  log2       16 16 17 17 17 17 17 16 15 14 14 14 14 15 15 15 15 16
//!
//!  scale 1024      gradients     clip       gradients afterwards   returns
//!                  3072 -4096    10.0        3.0 -4.0              Some(5.0)
//!                  3072 -4096     1.0        0.6 -0.8              Some(5.0)
//!                  3072   inf     1.0        (nobody reads them)   None
//! ```
//!
//! The check looks at the scale first, and then at the gradients.

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
        let norm = global_norm(gradients);
        todo!("a norm of {norm} with the scale {}, to clip at {clip}", self.scale)
    }
}
