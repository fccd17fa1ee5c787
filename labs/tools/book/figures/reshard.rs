//! Slices of four ranks, put together and cut again for three.

use crate::draw::{Anchor, Coat, Ink, Sketch};
use crate::reshard::{FIRST, Held, PARAMETERS, Slice, pieces, slices};
use anyhow::Result;
use shardlab::parallel::zero::Stage;

const GAP: f64 = 6.0;
const HIGH: f64 = 26.0;
const RIBBON: f64 = 34.0;

/// The slices that were saved, whole parameters, and the slices of the new ranks. Ribbons have the
/// colour of the rank that saved.
pub(super) fn picture() -> Result<String> {
    let (stage, now, before) = FIRST;
    let old = slices(Stage::One, before)?;
    let new = slices(stage, now)?;
    let most = [&old, &new].map(|slices| slices.iter().map(|slice| slice.numel).sum::<usize>());
    let boxes = PARAMETERS.len().max(before).max(now);
    let each = (478.0 - GAP * (boxes - 1) as f64) / most[0].max(most[1]) as f64;
    let mut sketch = Sketch::default();
    let top = 24.0;
    let [middle, bottom] = [1.0, 2.0].map(|row| top + row * (HIGH + RIBBON));
    let mut x = 1.0;
    let starts = PARAMETERS.map(|(name, shape)| {
        let start = x;
        let wide = each * shape.iter().product::<usize>() as f64;
        sketch.boxed((x, middle), (wide, HIGH), Ink::Page, Coat::Line, name);
        x += wide + GAP;
        start
    });
    let left =
        |slices: &[Slice], rank: usize| 1.0 + rank as f64 * (slices[0].numel as f64 * each + GAP);
    let numel = |held: &Held| (held.elements[1] - held.elements[0]) as f64 * each;
    let whole = |held: &Held| starts[held.parameter] + held.elements[0] as f64 * each;
    let mut ribbon = |[from, to]: [f64; 2], wide: f64, y: f64, ink: Ink| {
        let corners = [(to, y + RIBBON), (from, y), (from + wide, y), (to + wide, y + RIBBON)];
        sketch.area(&corners, y + RIBBON, ink);
    };
    for (rank, slice) in old.iter().enumerate() {
        for held in &slice.held {
            let from = left(&old, rank) + held.at as f64 * each;
            ribbon([from, whole(held)], numel(held), top + HIGH, Ink::Rank(rank));
        }
    }
    for (rank, slice) in new.iter().enumerate() {
        for piece in pieces(&old, slice) {
            let held = piece.held;
            let to = left(&new, rank) + held.at as f64 * each;
            ribbon([whole(&held), to], numel(&held), middle + HIGH, Ink::Rank(piece.from));
        }
    }
    for (slices, y, words) in [(&old, top, "save"), (&new, bottom, "resume")] {
        for (rank, slice) in slices.iter().enumerate() {
            let x = left(slices, rank);
            let wide = slice.numel as f64 * each;
            // Padding is at the end of the slices of stage 1, which this picture has.
            let held = slice.held.iter().map(numel).sum::<f64>();
            let ink = if y == top { Ink::Rank(rank) } else { Ink::Page };
            let name = format!("rank {rank}");
            let coat = if y == top { Coat::Light } else { Coat::Line };
            sketch.boxed((x, y), (held, HIGH), ink, coat, &name);
            sketch.boxed((x + held, y), (wide - held, HIGH), ink, Coat::Dashes, "");
        }
        let words = format!("{} ranks {words}", slices.len());
        let line = if y == top { 14.0 } else { y + HIGH + 18.0 };
        sketch.words((0.0, line), Anchor::Start, words);
    }
    let title = "Four ranks save 22 elements in equal slices with padding; three ranks cut the whole parameters again";
    Ok(sketch.svg(title, bottom + HIGH + 24.0))
}
