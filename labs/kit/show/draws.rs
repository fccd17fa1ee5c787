//! The micro-batches that a training draws: which step learns from each, and which are discarded.

use super::scene::{Look, Scene};
use super::svg::curve_colour;
use super::text::{columns, widest};
use std::ops::RangeInclusive;

/// Ways to draw, one per row. Micro-batch n, counted from 1, is in column n.
#[derive(Clone, Debug)]
pub struct Draws {
    /// Each way's name, and for each micro-batch the step that learned from it; `None` if it was
    /// discarded.
    pub rows: Vec<(String, Vec<Option<usize>>)>,
    /// The bad micro-batches.
    pub bad: RangeInclusive<usize>,
}

impl Draws {
    /// The rows as an inline SVG: a box for each micro-batch with the number of its step, an
    /// outline for a discarded one, and a band behind the bad ones.
    pub fn svg(&self, title: &str) -> String {
        const HEAD: &str = "micro-batch";
        const WIDTH: usize = 3;
        let names = 2 + widest(self.rows.iter().map(|row| &row.0)).max(columns(HEAD)) + 1;
        let place = |row: usize, n: usize| (row, names + WIDTH * n.saturating_sub(1), WIDTH);
        let mut scene = Scene::new(names, 27.0);
        let bad = WIDTH * (self.bad.end() + 1).saturating_sub(*self.bad.start());
        scene.band(place(0, *self.bad.start()).1, bad, "#d0503f");
        scene.words(0, 2, HEAD);
        scene.words(1, 2, "bad");
        let count = self.rows.iter().map(|row| row.1.len()).max();
        for n in 1..=count.unwrap_or(0) {
            scene.number(place(0, n), &n.to_string());
            if self.bad.contains(&n) {
                scene.number(place(1, n), "!");
            }
        }
        for (row, (name, steps)) in (2..).zip(&self.rows) {
            scene.words(row, 2, name);
            for (n, step) in (1..).zip(steps) {
                match step {
                    Some(step) => {
                        let look = Look::Tinted(curve_colour(*step));
                        scene.boxed(place(row, n), "", look, &step.to_string());
                    }
                    None => {
                        scene.boxed(place(row, n), "", Look::Dashed("currentColor"), "");
                    }
                }
            }
        }
        scene.svg(title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws() -> Draws {
        let rows = vec![
            ("nothing".to_string(), vec![Some(1), Some(1), Some(2), Some(2)]),
            ("one".to_string(), vec![Some(1), Some(1), None, Some(2), Some(2)]),
        ];
        Draws { rows, bad: 3..=4 }
    }

    #[test]
    fn a_page_has_a_box_for_each_draw_and_a_band_for_the_bad_ones() {
        let svg = draws().svg("two ways");
        assert_eq!(svg.matches("<rect").count(), 9 + 1, "{svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "{svg}");
        assert!(!svg.contains("\n\n"));
    }
}
