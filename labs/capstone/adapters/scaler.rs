//! lab08-scaler as a part of the trainer.

use capstone::parts::{Scaler, Scaling};

/// The exercise's scaler, as the trainer saves it.
fn saved(scaler: &lab08_scaler::Scaler) -> Scaler {
    Scaler {
        scale: scaler.scale,
        min: scaler.min,
        window: scaler.window,
        hysteresis: scaler.hysteresis,
        good: scaler.good,
        remaining: scaler.remaining,
    }
}

pub fn take(parts: &mut capstone::Parts) {
    parts.scaler = Scaling {
        new: |scale, min, window, hysteresis| {
            saved(&lab08_scaler::Scaler::new(scale, min, window, hysteresis))
        },
        step: |scaler, gradients, clip| {
            let mut yours = lab08_scaler::Scaler {
                scale: scaler.scale,
                min: scaler.min,
                window: scaler.window,
                hysteresis: scaler.hysteresis,
                good: scaler.good,
                remaining: scaler.remaining,
            };
            let norm = yours.step(gradients, clip);
            *scaler = saved(&yours);
            norm
        },
    };
}
