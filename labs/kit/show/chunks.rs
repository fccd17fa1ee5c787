//! The chunks of an algorithm: who holds whose numbers at some moments, and who passes what to whom in one round.

use super::screen::Screen;
use super::svg::{WIDTH, area, frame, picture, rank_colour, text};
use super::text::{columns, pad_left};
use std::f64::consts::TAU;
use std::fmt::Write;

/// One chunk of one rank: whether it contains the numbers of each rank.
pub type Chunk = Vec<bool>;

/// The chunks of all ranks at some moments, rank by rank.
#[derive(Clone, Debug)]
pub struct Moments(pub Vec<(String, Vec<Vec<Chunk>>)>);

impl Moments {
    /// The moments side by side. A rank's digit in a chunk is a rank's contribution, ones for rank 0.
    pub fn render(&self, screen: &Screen) -> String {
        let number = |chunk: &Chunk, index: usize| {
            let digit =
                |(rank, &there): (usize, &bool)| there.then(|| screen.rank(rank, index + 1));
            let digits: Vec<String> = chunk
                .iter()
                .enumerate()
                .rev()
                .map(|rank| digit(rank).unwrap_or_else(|| "0".into()))
                .collect();
            let first = chunk
                .iter()
                .rev()
                .position(|&there| there)
                .unwrap_or(chunk.len());
            pad_left(&digits[first..].concat(), chunk.len() + 1)
        };
        let ranks = self.0.first().map_or(0, |moment| moment.1.len());
        let arrow = if screen.ascii { " ->" } else { " →" };
        let line = |rank: usize| {
            let moment = |moment: &(String, Vec<Vec<Chunk>>)| -> String {
                moment.1[rank]
                    .iter()
                    .enumerate()
                    .map(|(i, chunk)| number(chunk, i))
                    .collect()
            };
            let moments: Vec<String> = self.0.iter().map(moment).collect();
            format!(
                "  {}{}",
                screen.rank(rank, format!("rank {rank}")),
                moments.join(arrow)
            )
            .trim_end()
            .to_owned()
        };
        let names = self.0.iter().map(|(name, chunks)| {
            let width = chunks
                .first()
                .map_or(0, |chunks| chunks.len() * (ranks + 1));
            pad_left(name, width)
        });
        let mut lines = vec![format!(
            "        {}",
            names.collect::<Vec<_>>().join(&" ".repeat(columns(arrow)))
        )];
        lines.extend((0..ranks).map(line));
        lines.join("\n")
    }

    /// The moments side by side, as an inline SVG: a chunk has a stripe for each rank whose numbers it contains.
    pub fn svg(&self, title: &str) -> String {
        const LEFT: f64 = 50.0;
        const GAP: f64 = 16.0;
        const ROW: f64 = 34.0;
        let count = self.0.len().max(1) as f64;
        let width = (WIDTH - LEFT - GAP * (count - 1.0)) / count;
        let mut body = String::new();
        let mut rows = 0;
        for (i, (name, ranks)) in self.0.iter().enumerate() {
            let x = LEFT + (width + GAP) * i as f64;
            body += &text(x + width / 2.0, 14.0, "middle", name);
            rows = ranks.len();
            for (rank, chunks) in ranks.iter().enumerate() {
                let y = 24.0 + ROW * rank as f64;
                if i == 0 {
                    body += &text(0.0, y + 19.0, "start", &format!("rank {rank}"));
                }
                let cell = width / chunks.len().max(1) as f64;
                for (j, chunk) in chunks.iter().enumerate() {
                    let x = x + cell * j as f64;
                    let stripe = (cell - 4.0) / chunk.len().max(1) as f64;
                    for (rank, _) in chunk.iter().enumerate().filter(|(_, there)| **there) {
                        let at = (x + 2.0 + stripe * rank as f64, y + 1.0);
                        body += &area(at, (stripe, 26.0), rank_colour(rank));
                    }
                    body += &frame((x + 2.0, y + 1.0), (cell - 4.0, 26.0), "currentColor", 1.0);
                }
            }
        }
        picture(title, 28.0 + ROW * rows as f64, &body)
    }
}

/// One round of a ring: the chunk that each rank sends to the next one.
#[derive(Clone, Debug)]
pub struct Ring(pub Vec<usize>);

impl Ring {
    /// One line per message.
    pub fn render(&self, screen: &Screen) -> String {
        let (rule, arrow) = if screen.ascii {
            ("--", "-->")
        } else {
            ("──", "─→")
        };
        let line = |(rank, chunk): (usize, &usize)| {
            let [from, to] = [rank, (rank + 1) % self.0.len()]
                .map(|rank| screen.rank(rank, format!("rank {rank}")));
            format!("  {from} {rule} chunk {chunk} {arrow} {to}")
        };
        self.0
            .iter()
            .enumerate()
            .map(line)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The ranks in a circle, as an inline SVG. Arrows have the colour of the rank that sends.
    pub fn svg(&self, title: &str) -> String {
        const X: f64 = WIDTH / 2.0;
        const Y: f64 = 125.0;
        const RADIUS: f64 = 95.0;
        let at = |rank: f64, radius: f64| {
            let angle = TAU * (rank / self.0.len() as f64 - 0.25);
            (X + 1.4 * radius * angle.cos(), Y + radius * angle.sin())
        };
        let mut body = String::new();
        for (rank, chunk) in self.0.iter().enumerate() {
            let place = rank as f64;
            let colour = rank_colour(rank);
            let (x0, y0) = at(place + 0.28, RADIUS);
            let (x1, y1) = at(place + 0.5, RADIUS);
            let (x2, y2) = at(place + 0.7, RADIUS);
            let dx = x2 - x1;
            let dy = y2 - y1;
            let length = dx.hypot(dy).max(1.0);
            let ux = dx / length;
            let uy = dy / length;
            let _ = writeln!(
                body,
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
            );
            let (x, y) = at(place + 0.5, 0.66 * RADIUS);
            body += &text(x, y + 4.0, "middle", &format!("chunk {chunk}"));
            let (x, y) = at(place, RADIUS);
            body += &frame((x - 34.0, y - 17.0), (68.0, 34.0), colour, 3.0);
            body += &text(x, y + 5.0, "middle", &format!("rank {rank}"));
        }
        picture(title, 2.0 * Y, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_shows_whose_numbers_it_contains() {
        let moments = Moments(vec![
            (
                "before".into(),
                vec![vec![vec![true, false]; 2], vec![vec![false, true]; 2]],
            ),
            (
                "after".into(),
                vec![
                    vec![vec![true, true], vec![false, false]],
                    vec![vec![true, true]; 2],
                ],
            ),
        ]);
        let ascii = Screen {
            ascii: true,
            ..Screen::plain()
        };
        let expected = "        before    after\n  rank 0  1  2 -> 11\n  rank 1 10 20 -> 11 22";
        assert_eq!(moments.render(&ascii), expected);
        // A stripe for each contribution, and a frame for each chunk.
        assert_eq!(moments.svg("two ranks").matches("<rect").count(), 4 + 6 + 8);
    }

    #[test]
    fn a_ring_passes_on() {
        let ring = Ring(vec![2, 0, 1]);
        let ascii = Screen {
            ascii: true,
            ..Screen::plain()
        };
        assert_eq!(
            ring.render(&ascii),
            "  rank 0 -- chunk 2 --> rank 1\n  rank 1 -- chunk 0 --> rank 2\n  rank 2 -- chunk 1 --> rank 0"
        );
        assert_eq!(ring.svg("three ranks").matches(">chunk ").count(), 3);
    }
}
