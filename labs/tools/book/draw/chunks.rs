//! The chunks of an algorithm: who holds whose numbers at some moments, and who passes what to whom
//! in one round.

use kit::show::svg::{Anchor, Page, Point, WIDTH, framed, rank_colour};
use kit::show::{Look, Scene};
use std::f64::consts::TAU;

/// One chunk of one rank: whether it contains the numbers of each rank.
pub type Chunk = Vec<bool>;

/// The chunks of all ranks at some moments side by side, as an inline SVG: a chunk has a stripe for
/// each rank whose numbers it contains.
pub fn moments(title: &str, moments: &[(String, Vec<Vec<Chunk>>)]) -> String {
    const NAMES: usize = 8;
    const GAP: usize = 2;
    let mut scene = Scene::new(NAMES, 32.0);
    let mut column = NAMES;
    for (moment, (name, ranks)) in moments.iter().enumerate() {
        let cell = ranks.len() + 1;
        let width = cell * ranks.first().map_or(0, Vec::len);
        scene.number((0, column, width), name);
        for (rank, chunks) in ranks.iter().enumerate() {
            let row = rank + 1;
            if moment == 0 {
                scene.words(row, 2, &format!("rank {rank}"));
            }
            for (i, chunk) in chunks.iter().enumerate() {
                let place = (row, column + cell * i, cell);
                let stripe = |(rank, &there): (usize, &bool)| there.then(|| rank_colour(rank));
                let stripes = chunk.iter().enumerate().map(stripe).collect();
                scene.boxed(place, "", Look::Stripes(stripes), "");
            }
        }
        column += width + GAP;
    }
    scene.svg(title)
}

/// One round of a ring, in which each rank sends a chunk to the next one: the ranks in a circle, as
/// an inline SVG. Arrows have the colour of the rank that sends.
pub fn round(title: &str, chunks: &[usize]) -> String {
    const X: f64 = WIDTH / 2.0;
    const Y: f64 = 125.0;
    const RADIUS: f64 = 95.0;
    let at = |rank: f64, radius: f64| {
        let angle = TAU * (rank / chunks.len() as f64 - 0.25);
        (X + 1.4 * radius * angle.cos(), Y + radius * angle.sin())
    };
    let mut page = Page::default();
    for (rank, chunk) in chunks.iter().enumerate() {
        let place = rank as f64;
        let colour = rank_colour(rank);
        let from = at(place + 0.28, RADIUS);
        let middle = at(place + 0.5, RADIUS);
        let to = at(place + 0.7, RADIUS);
        page.add(arrow(colour, from, middle, to));
        let (x, y) = at(place + 0.5, 0.66 * RADIUS);
        page.text((x, y + 4.0), Anchor::Middle, format!("chunk {chunk}"));
        let (x, y) = at(place, RADIUS);
        page.rect((x - 34.0, y - 17.0), (68.0, 34.0), framed(colour, 3.0));
        page.text((x, y + 5.0), Anchor::Middle, format!("rank {rank}"));
    }
    page.finish(title, 2.0 * Y)
}

/// A bow through three points with a head at its end.
fn arrow(colour: &str, (x0, y0): Point, (x1, y1): Point, (x2, y2): Point) -> String {
    let dx = x2 - x1;
    let dy = y2 - y1;
    let length = dx.hypot(dy).max(1.0);
    let ux = dx / length;
    let uy = dy / length;
    format!(
        "<path d=\"M{x0:.1} {y0:.1} Q{:.1} {:.1} {x2:.1} {y2:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"3\"/>\n\
         <path d=\"M{:.1} {:.1} L{:.1} {:.1} L{:.1} {:.1} Z\" fill=\"{colour}\"/>",
        2.0 * x1 - (x0 + x2) / 2.0,
        2.0 * y1 - (y0 + y2) / 2.0,
        x2 + 10.0 * ux,
        y2 + 10.0 * uy,
        x2 - 6.0 * uy,
        y2 + 6.0 * ux,
        x2 + 6.0 * uy,
        y2 - 6.0 * ux,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_shows_whose_numbers_it_contains() {
        let shown = [
            ("before".into(), vec![vec![vec![true, false]; 2], vec![vec![false, true]; 2]]),
            (
                "after".into(),
                vec![vec![vec![true, true], vec![false, false]], vec![vec![true, true]; 2]],
            ),
        ];
        // A stripe for each contribution, and a frame for each chunk.
        assert_eq!(moments("two ranks", &shown).matches("<rect").count(), 4 + 6 + 8);
    }

    #[test]
    fn a_ring_passes_on() {
        assert_eq!(round("three ranks", &[2, 0, 1]).matches(">chunk ").count(), 3);
    }
}
