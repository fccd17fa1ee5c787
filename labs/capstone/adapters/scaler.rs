//! lab08-scaler as a part of the trainer.

use capstone::parts::Scaler;

pub fn take(parts: &mut capstone::Parts) {
    parts.scaler = |scaler, gradients, clip| {
        let mut yours = lab08_scaler::Scaler {
            scale: scaler.scale,
            min: scaler.min,
            window: scaler.window,
            hysteresis: scaler.hysteresis,
            good: scaler.good,
            remaining: scaler.remaining,
        };
        let norm = yours.step(gradients, clip);
        *scaler = Scaler {
            scale: yours.scale,
            min: yours.min,
            window: yours.window,
            hysteresis: yours.hysteresis,
            good: yours.good,
            remaining: yours.remaining,
        };
        norm
    };
}
