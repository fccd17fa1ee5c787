//! Data parallelism: copies of one model, batches of their own, and one average.

use crate::draw::{Anchor, Coat, Ink, Sketch, Stroke};

const RANKS: usize = 3;

/// The picture.
pub(super) fn picture() -> String {
    const COLUMN: f64 = 160.0;
    const WIDE: f64 = 136.0;
    const HIGH: f64 = 28.0;
    let mut sketch = Sketch::default();
    let down = |sketch: &mut Sketch, x: f64, from: f64| {
        sketch.line((x, from), (x, from + 18.0), Ink::Page, Stroke::Arrow);
    };
    for rank in 0..RANKS {
        let left = COLUMN * rank as f64 + (COLUMN - WIDE) / 2.0;
        let middle = left + WIDE / 2.0;
        let own = Ink::Rank(rank);
        sketch.words((middle, 14.0), Anchor::Middle, format!("rank {rank}"));
        let rows = [
            (22.0, own, "its own sequences"),
            (70.0, Ink::Same, "copy of the model"),
            (118.0, own, "its own gradients"),
            (214.0, Ink::Same, "the same update"),
        ];
        for (y, ink, words) in rows {
            sketch.boxed((left, y), (WIDE, HIGH), ink, Coat::Light, words);
        }
        for y in [51.0, 99.0, 147.0, 195.0] {
            down(&mut sketch, middle, y);
        }
    }
    let corner = ((COLUMN - WIDE) / 2.0, 166.0);
    let wide = COLUMN * (RANKS - 1) as f64 + WIDE;
    let words = "one all-reduce: the average of all gradients";
    sketch.boxed(corner, (wide, HIGH), Ink::Same, Coat::Light, words);
    let title = "Data parallelism: three copies of a model, each with its own sequences, average their gradients and stay the same";
    sketch.svg(title, 246.0)
}
