//! What a ring sends beside Ulysses, by the formulas that lab12 compares its bytes with.

use crate::draw::{Anchor, Ink, Sketch, Stroke};
use kit::show::counted;
use labs::lab12::ring_beside_ulysses;

/// Query heads for each key head: multi-head attention, Llama 3 70B and 405B.
const GROUPS: [usize; 3] = [1, 8, 16];

/// Context ranks that have a mark.
const RANKS: [usize; 5] = [2, 4, 8, 16, 32];

/// The forward pass. A step's bytes are half as many again, so its line of equals is lower.
pub(super) fn picture() -> String {
    const LEFT: f64 = 34.0;
    const RIGHT: f64 = 340.0;
    const TOP: f64 = 36.0;
    const BOTTOM: f64 = 250.0;
    const LOW: (f64, f64) = (2.0, 0.1);
    const HIGH: (f64, f64) = (32.0, 20.0);
    let part = |value: f64, low: f64, high: f64| (value / low).ln() / (high / low).ln();
    let x = |ranks: f64| LEFT + (RIGHT - LEFT) * part(ranks, LOW.0, HIGH.0);
    let y = |ratio: f64| BOTTOM - (BOTTOM - TOP) * part(ratio, LOW.1, HIGH.1);
    let mut sketch = Sketch::default();
    sketch.words((0.0, 14.0), Anchor::Start, "bytes of a ring for each byte of Ulysses, forward");
    for ratio in [0.1, 0.3, 3.0, 10.0] {
        sketch.words((LEFT - 5.0, y(ratio) + 4.5), Anchor::End, ratio);
        sketch.line((LEFT, y(ratio)), (LEFT + 5.0, y(ratio)), Ink::Page, Stroke::Thin);
    }
    let [forward, step] = ring_beside_ulysses(2, 1);
    let equal = [(1.0, "equal, forward"), (forward / step, "equal in a step")];
    for (ratio, name) in equal {
        sketch.line((LEFT, y(ratio)), (RIGHT, y(ratio)), Ink::Same, Stroke::Dashes);
        sketch.words((RIGHT + 6.0, y(ratio) + 4.5), Anchor::Start, name);
    }
    sketch.words((LEFT - 5.0, y(1.0) + 4.5), Anchor::End, 1);
    for ranks in RANKS {
        let at = x(ranks as f64);
        sketch.words((at, BOTTOM + 17.0), Anchor::Middle, ranks);
        sketch.line((at, BOTTOM), (at, BOTTOM - 5.0), Ink::Page, Stroke::Thin);
    }
    sketch.words((RIGHT, BOTTOM + 36.0), Anchor::End, "context ranks");
    sketch.line((LEFT, BOTTOM), (RIGHT, BOTTOM), Ink::Page, Stroke::Thin);
    sketch.line((LEFT, BOTTOM), (LEFT, TOP), Ink::Page, Stroke::Thin);
    for (kind, group) in GROUPS.into_iter().enumerate() {
        let place = |ranks: usize| (x(ranks as f64), y(ring_beside_ulysses(ranks, group)[0]));
        sketch.curve(RANKS.into_iter().map(place), Ink::Kind(kind));
        for ranks in RANKS {
            sketch.dot(place(ranks), Ink::Kind(kind));
        }
        let (left, top) = place(32);
        let words = counted(group, "query head", "query heads");
        sketch.words((left + 9.0, top + 4.5), Anchor::Start, words);
    }
    let title =
        "Up to 16 context ranks a ring sends less than Ulysses, if 16 query heads share a key head";
    sketch.svg(title, BOTTOM + 42.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says of 16 ranks, and how a step differs from a forward pass.
    #[test]
    fn a_ring_of_16_sends_less_with_16_query_heads() {
        let forward = |ranks, group| ring_beside_ulysses(ranks, group)[0];
        assert!(forward(16, 16) < 1.0 && (forward(17, 16) - 1.0).abs() < 1e-12);
        assert!(forward(16, 8) > 1.0 && forward(8, 8) < 1.0 && forward(2, 1) >= 1.0);
        let svg = picture();
        assert_eq!(svg.matches("<circle").count(), GROUPS.len() * RANKS.len());
        assert!([2, 4, 8, 16, 32].iter().all(|ranks| svg.contains(&format!(">{ranks}</text>"))));
        for group in GROUPS {
            for ranks in RANKS {
                let [forward, step] = ring_beside_ulysses(ranks, group);
                assert!((step / forward - 1.5).abs() < 1e-12);
            }
        }
    }
}
