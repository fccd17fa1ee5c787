//! `lab08-scaler`: the loss scale, and clipping.

use serde::{Deserialize, Serialize};
use shardlab::train::global_norm;

/// A loss scale, and what the rule counts. A checkpoint stores it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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

/// Unscales gradients and clips them to a norm; None if they overflowed. Updates the scale.
pub type Step = fn(&mut Scaler, &mut [f32], f64) -> Option<f64>;

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
}

/// Megatron-LM's rule, as `shardlab::train::LossScaler` has it (a test holds the two together).
pub fn library(scaler: &mut Scaler, gradients: &mut [f32], clip: f64) -> Option<f64> {
    let scale = scaler.scale;
    let norm = global_norm(gradients) / scale;
    if !norm.is_finite() {
        scaler.good = 0;
        scaler.remaining = scaler.remaining.saturating_sub(1);
        if scaler.remaining == 0 {
            scaler.scale = (scale / 2.0).max(scaler.min);
        }
        return None;
    }
    scaler.good += 1;
    if scaler.good == scaler.window {
        scaler.good = 0;
        scaler.scale *= 2.0;
        scaler.remaining = scaler.hysteresis;
    }
    let factor = (clip / norm).min(1.0) / scale;
    for g in gradients {
        *g = (f64::from(*g) * factor) as f32;
    }
    Some(norm)
}

/// Gradients are unscaled, and never clipped. The scale stays.
pub fn without(scaler: &mut Scaler, gradients: &mut [f32], _clip: f64) -> Option<f64> {
    let norm = global_norm(gradients) / scaler.scale;
    for g in gradients {
        *g = (f64::from(*g) / scaler.scale) as f32;
    }
    Some(norm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab08::skipping::{LossScaler, ScalerConfig, ScalerRule};

    #[test]
    fn the_rule_is_megatrons() {
        let config = ScalerConfig {
            initial: 65_536.0,
            window: 3,
            ..ScalerRule::Megatron.defaults()
        };
        let mut right = LossScaler::new(config);
        let mut scaler = Scaler::new(65_536.0, 1.0, 3, 2);
        for norm in "ggggiigigiiigggggg".chars() {
            let norm = if norm == 'g' { 1.0 } else { f32::INFINITY };
            right.update(!norm.is_finite()).unwrap();
            assert_eq!(library(&mut scaler, &mut [norm], 1.0).is_some(), norm.is_finite());
            assert_eq!(scaler.scale, right.scale());
        }
    }
}
