//! Context parallelism: the square of queries and keys, cut in two ways among four ranks.

use crate::draw::{Anchor, Coat, Ink, Sketch};
use labs::lab12::{Cell, Grid};
use shardlab::parallel::context::Slicing;

const RANKS: usize = 4;
const SIDE: f64 = 176.0;

/// Chunks of queries and keys, in contiguous and in zig-zag order. A row has the colour of the rank
/// that computes it, and a number is the round of a ring.
pub(super) fn picture() -> String {
    let mut sketch = Sketch::default();
    for (left, slicing) in [(30.0, Slicing::Contiguous), (270.0, Slicing::ZigZag)] {
        let grid = Grid { ranks: RANKS, slicing, length: 64, documents: Vec::new() };
        let chunks = grid.chunks();
        let cell = SIDE / chunks as f64;
        sketch.words(
            (left + SIDE / 2.0, 14.0),
            Anchor::Middle,
            format!("{} order", slicing.name()),
        );
        for queries in 0..chunks {
            for keys in 0..chunks {
                if let Cell::Round(round) = grid.cell(queries, keys) {
                    let corner = (left + cell * keys as f64, 24.0 + cell * queries as f64);
                    let ink = Ink::Rank(grid.owner(queries));
                    sketch.boxed(corner, (cell, cell), ink, Coat::Light, &round.to_string());
                }
            }
        }
        sketch.boxed((left, 24.0), (SIDE, SIDE), Ink::Page, Coat::Dashes, "");
    }
    let title = "Queries by keys of one sequence on four ranks: contiguous slices give the last rank most blocks, zig-zag slices give \
                 each the same number";
    sketch.svg(title, SIDE + 34.0)
}
