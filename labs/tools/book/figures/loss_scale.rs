//! The loss scale over a run: up by doubling, down at overflows.

use crate::draw::{Anchor, Coat, Ink, Sketch, Stroke};
use anyhow::Result;
use labs::lab08::skipping::{LossScaler, ScalerConfig, ScalerRule};

const STEPS: usize = 90;
/// Good steps before the scale grows: few, so that the picture has both directions.
const WINDOW: u64 = 9;
const FIRST: i32 = 24;

/// The exponent of the largest scale with which the gradients of a step fit: made up. They grow in
/// the middle of the run.
fn fits(step: usize) -> i32 {
    match step {
        0..38 => 19,
        38..58 => 16,
        _ => 18,
    }
}

/// The exponent of the scale in each step, and whether its gradients overflow.
fn search() -> Result<Vec<(i32, bool)>> {
    let defaults = ScalerRule::Megatron.defaults();
    let initial = 2f64.powi(FIRST);
    let mut scaler = LossScaler::new(ScalerConfig { initial, window: WINDOW, ..defaults });
    let step = |step| {
        let exponent = scaler.scale().log2() as i32;
        let overflows = exponent > fits(step);
        scaler.update(overflows)?;
        Ok((exponent, overflows))
    };
    (0..STEPS).map(step).collect()
}

/// The search of a run with made-up gradients.
pub(super) fn picture() -> Result<String> {
    const LEFT: f64 = 40.0;
    const RIGHT: f64 = 468.0;
    const TOP: f64 = 40.0;
    const BOTTOM: f64 = 204.0;
    let steps = search()?;
    let x = |step: usize| LEFT + (RIGHT - LEFT) * step as f64 / STEPS as f64;
    let y = |exponent: i32| BOTTOM - (BOTTOM - TOP) * f64::from(exponent - 15) / 9.0;
    let mut sketch = Sketch::default();
    for (x, ink, coat, words) in [
        (0.0, Ink::Kind(0), Coat::Full, "scale"),
        (70.0, Ink::Kind(1), Coat::Full, "overflow: the step is refused"),
        (300.0, Ink::Same, Coat::Dashes, "largest that fits"),
    ] {
        sketch.boxed((x, 2.0), (12.0, 12.0), ink, coat, "");
        sketch.words((x + 17.0, 13.0), Anchor::Start, words);
    }
    for exponent in [16, 18, 20, 22, 24] {
        sketch.words((LEFT - 6.0, y(exponent) + 4.5), Anchor::End, power(exponent));
    }
    for step in (0..=STEPS).step_by(15) {
        sketch.words((x(step), BOTTOM + 17.0), Anchor::Middle, step);
    }
    sketch.words((RIGHT, BOTTOM + 36.0), Anchor::End, "step");
    sketch.line((LEFT, BOTTOM), (RIGHT, BOTTOM), Ink::Page, Stroke::Thin);
    let mut from = 0;
    for step in 1..=STEPS {
        if step == STEPS || fits(step) != fits(from) {
            let y = y(fits(from));
            sketch.line((x(from), y), (x(step), y), Ink::Same, Stroke::Dashes);
            from = step;
        }
    }
    let ends = steps.iter().enumerate();
    let stairs =
        ends.flat_map(|(i, &(exponent, _))| [(x(i), y(exponent)), (x(i + 1), y(exponent))]);
    sketch.curve(stairs, Ink::Kind(0));
    for (step, &(exponent, overflows)) in steps.iter().enumerate() {
        if overflows {
            let size = (x(step + 1) - x(step) - 1.0, 10.0);
            let corner = (x(step) + 0.5, y(exponent) - size.1 / 2.0);
            sketch.boxed(corner, size, Ink::Kind(1), Coat::Full, "");
        }
    }
    let title = "The loss scale halves at overflows until gradients fit, doubles after good steps, and halves again";
    Ok(sketch.svg(title, BOTTOM + 42.0))
}

/// 2 to the power of a number, in small letters that need no markup.
fn power(exponent: i32) -> String {
    let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let of = |digit: char| digits[digit.to_digit(10).unwrap_or(0) as usize];
    format!("2{}", exponent.to_string().chars().map(of).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the caption says.
    #[test]
    fn the_scale_falls_rises_and_falls_again() {
        let steps = search().unwrap();
        let refused: Vec<usize> = (0..STEPS).filter(|&step| steps[step].1).collect();
        // One for the hysteresis, and one for each halving.
        assert_eq!(refused[..6], [0, 1, 2, 3, 4, 5]);
        assert_eq!(steps[6].0, 19);
        assert_eq!(steps[15], (20, true), "doubled after 9 good steps, and too large");
        assert_eq!((steps[16].1, steps[17]), (true, (19, false)), "the second one halves");
        let last = steps.iter().rev().find(|step| !step.1).map(|step| step.0);
        assert_eq!(last, Some(18), "at the end the scale has followed the gradients up");
        assert!(steps.iter().all(|&(exponent, _)| (16..=24).contains(&exponent)));
        assert_eq!(power(19), "2¹⁹");
    }
}
