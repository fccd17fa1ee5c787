//! How often to save: the time that is lost, against the interval between checkpoints.

use crate::draw::{Anchor, Ink, Sketch, Stroke};
use kit::show::significant;

/// BLOOM's numbers, from its chronicles: seconds of a save, of an iteration, and between failures.
const SAVE: f64 = 40.0;
const ITERATION: f64 = 105.0;
const FAILURE: f64 = 7.0 * 24.0 * 3600.0;

/// The shares of the time that go to saves and to work done twice, if so many iterations lie
/// between two checkpoints.
fn lost(iterations: f64) -> [f64; 2] {
    let interval = ITERATION * iterations;
    [SAVE / interval, interval / (2.0 * FAILURE)]
}

fn sum(iterations: f64) -> f64 {
    lost(iterations).iter().sum()
}

/// Young's interval in iterations.
fn young() -> f64 {
    (2.0 * SAVE * FAILURE).sqrt() / ITERATION
}

/// The curve, its two terms, and the intervals of the page's table.
pub(super) fn picture() -> String {
    const LEFT: f64 = 34.0;
    const RIGHT: f64 = 474.0;
    const TOP: f64 = 30.0;
    const BOTTOM: f64 = 210.0;
    const MOST: (f64, f64) = (300.0, 0.045);
    let x = |iterations: f64| LEFT + (RIGHT - LEFT) * iterations / MOST.0;
    let y = |share: f64| BOTTOM - (BOTTOM - TOP) * share / MOST.1;
    let mut sketch = Sketch::default();
    sketch.words((0.0, 14.0), Anchor::Start, "share of the time that is lost");
    for percent in [0.0, 1.0, 2.0, 3.0, 4.0] {
        sketch.words((LEFT - 5.0, y(percent / 100.0) + 4.5), Anchor::End, format!("{percent}%"));
    }
    for iterations in [0.0, 100.0, 200.0, 300.0] {
        let anchor = if iterations == MOST.0 {
            Anchor::End
        } else {
            Anchor::Middle
        };
        sketch.words((x(iterations), BOTTOM + 17.0), anchor, iterations);
    }
    let words = "iterations between two checkpoints";
    sketch.words(((LEFT + RIGHT) / 2.0, BOTTOM + 36.0), Anchor::Middle, words);
    sketch.line((LEFT, BOTTOM), (RIGHT, BOTTOM), Ink::Page, Stroke::Thin);
    let points = |of: &dyn Fn(f64) -> f64| {
        let points = (4..=300).map(f64::from).map(|iterations| (iterations, of(iterations)));
        let points = points.filter(|point| point.1 <= MOST.1);
        points.map(|(iterations, share)| (x(iterations), y(share))).collect::<Vec<_>>()
    };
    for (term, words, dy) in [(0, "saves", -7.0), (1, "work done twice", 20.0)] {
        sketch.curve(points(&|iterations| lost(iterations)[term]).into_iter(), Ink::Kind(4 + term));
        sketch.words((x(190.0), y(lost(190.0)[term]) + dy), Anchor::Start, words);
    }
    sketch.curve(points(&sum).into_iter(), Ink::Kind(0));
    let best = young();
    sketch.line((x(best), y(sum(best))), (x(best), BOTTOM), Ink::Page, Stroke::Dashes);
    for (iterations, ink) in [(10.0, 0), (best, 1), (100.0, 0), (250.0, 0)] {
        let at = (x(iterations), y(sum(iterations)));
        sketch.dot(at, Ink::Kind(ink));
        let lost = format!("{}%", significant(100.0 * sum(iterations), 3));
        let words = format!("{}: {lost}", iterations.round());
        let (place, anchor) = match iterations {
            n if n < 50.0 => ((at.0 + 10.0, at.1 + 5.0), Anchor::Start),
            n if n < 90.0 => ((at.0, at.1 - 28.0), Anchor::Middle),
            n if n < 200.0 => ((at.0 + 4.0, at.1 - 12.0), Anchor::Start),
            _ => ((at.0, at.1 - 12.0), Anchor::Middle),
        };
        sketch.words(place, anchor, words);
    }
    let title = "Saving too often and too rarely both lose time: the least is lost at Young's interval, and around it the curve is flat";
    sketch.svg(title, BOTTOM + 42.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's table.
    #[test]
    fn young_loses_least() {
        assert_eq!(young().round(), 66.0);
        for (iterations, percent) in [(250.0, 2.3), (100.0, 1.25), (66.0, 1.15), (10.0, 3.9)] {
            assert!((100.0 * sum(iterations) - percent).abs() < 0.05, "{iterations}");
        }
        assert!((1..1000).all(|iterations| sum(f64::from(iterations)) >= sum(young())));
    }
}
