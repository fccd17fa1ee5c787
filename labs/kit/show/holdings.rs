//! The drawing of which rank holds what: devices are columns, each with its data, parameters,
//! gradients and optimizer state.
//!
//! All strategies use this drawing, in the terminal and as SVG. Data that all ranks hold alike have
//! one colour on every device. Data that only one rank holds have that rank's colour, and its
//! number where there is no colour. A block is as long as its bytes, to one scale for the whole
//! picture.

use super::bars::{columns_to_scale, glyphs};
use super::screen::Screen;
use super::svg::{Anchor, Page, WIDTH, filled, framed, outlined, rank_colour};
use super::text::{columns, pad_right, widest};
use shardlab::units::bytes_decimal;

/// Width of the longest block in the terminal, in columns.
const BLOCK: usize = 12;

/// Width of the shortest block of a page's picture.
const THIN: f64 = 2.0;

/// The colour of data that every rank holds alike.
const SAME: &str = "#8a8f98";

/// How much of one kind of data a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The whole, the same on every rank.
    Same,
    /// The whole, different on every rank.
    Own,
    /// One of `of` equal slices, counted from 0; other ranks hold the rest.
    Slice { index: usize, of: usize },
}

/// One kind of data, and what each rank holds of it.
#[derive(Clone, Debug)]
pub struct Holding<'a> {
    pub name: &'a str,
    /// By rank.
    pub ranks: Vec<Fill>,
    /// On each rank.
    pub bytes: f64,
}

impl Holding<'_> {
    /// The bytes of the whole, of which a rank may hold a slice.
    fn whole(&self) -> f64 {
        let slices = self
            .ranks
            .iter()
            .map(|held| if let Fill::Slice { of, .. } = held { *of } else { 1 });
        self.bytes * slices.max().unwrap_or(1) as f64
    }
}

/// The drawing before it is rendered. All rows have the same number of ranks.
#[derive(Clone, Debug)]
pub struct Holdings<'a> {
    pub rows: Vec<Holding<'a>>,
    /// Printed below.
    pub note: String,
}

impl Holdings<'_> {
    fn ranks(&self) -> usize {
        self.rows.iter().map(|row| row.ranks.len()).max().unwrap_or(0)
    }

    /// The bytes of the longest block.
    fn most(&self) -> f64 {
        self.rows.iter().map(Holding::whole).fold(0.0, f64::max)
    }

    /// The drawing as text. Ranks that the screen has no room for are left out, and the last line
    /// says how many.
    pub fn render(&self, screen: &Screen) -> String {
        let name = widest(self.rows.iter().map(|row| row.name));
        let bytes = widest(self.rows.iter().map(|row| bytes_decimal(row.bytes)));
        let bytes = bytes.max(columns("per rank"));
        let room = screen.width.saturating_sub(2 + name + 2 + bytes) / (BLOCK + 2);
        let shown = self.ranks().min(room.max(1));
        let head = |rank: usize| pad_right(&screen.name(rank), BLOCK + 2);
        let heads: String = (0..shown).map(head).collect();
        let mut lines = vec![format!("{}{heads}{}", " ".repeat(name + 4), screen.dim("per rank"))];
        for row in &self.rows {
            let blocks = row.ranks.iter().take(shown).enumerate();
            let long = columns_to_scale(row.whole(), self.most(), BLOCK);
            let blocks: String =
                blocks.map(|(rank, &held)| block(screen, rank, held, long)).collect();
            lines.push(format!(
                "  {}  {blocks}{}",
                pad_right(row.name, name),
                bytes_decimal(row.bytes)
            ));
        }
        let left_out = self.ranks() - shown;
        let more = if left_out > 0 {
            format!("{left_out} more ranks like these. ")
        } else {
            String::new()
        };
        let note = screen.wrap(&format!("{more}{}", self.note), 2);
        if !note.trim().is_empty() {
            lines.push(note);
        }
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        lines.join("\n")
    }

    /// The drawing as an inline SVG.
    pub fn svg(&self, title: &str) -> String {
        const NAMES: f64 = 92.0;
        const BYTES: f64 = 72.0;
        const ROW: f64 = 30.0;
        let ranks = self.ranks().max(1);
        let column = ((WIDTH - NAMES - BYTES) / ranks as f64).min(160.0);
        let height = 34.0 + ROW * self.rows.len() as f64;
        let end = NAMES + column * ranks as f64 + 8.0;
        let mut page = Page::default();
        page.text((end, 18.0), Anchor::Start, "per rank");
        for rank in 0..ranks {
            let x = NAMES + column * rank as f64;
            let frame = framed(rank_colour(rank), 2.0);
            page.text((x + column / 2.0, 18.0), Anchor::Middle, format!("rank {rank}"));
            page.rect((x + 3.0, 4.0), (column - 6.0, height - 8.0), frame);
        }
        for (i, row) in self.rows.iter().enumerate() {
            let y = 28.0 + ROW * i as f64;
            page.text((0.0, y + 16.0), Anchor::Start, row.name);
            page.text((end, y + 16.0), Anchor::Start, bytes_decimal(row.bytes));
            let width = ((column - 22.0) * row.whole() / self.most().max(1.0)).max(THIN);
            for (rank, &held) in row.ranks.iter().enumerate() {
                let x = NAMES + column * rank as f64 + 11.0;
                let (part, colour) = match held {
                    Fill::Same => (0.0..1.0, SAME),
                    Fill::Own => (0.0..1.0, rank_colour(rank)),
                    Fill::Slice { index, of } => {
                        let slice = 1.0 / of.max(1) as f64;
                        let start = index as f64 * slice;
                        (start..start + slice, rank_colour(rank))
                    }
                };
                let whole = format!("{} stroke-opacity=\"0.35\"", outlined("currentColor"));
                page.rect((x, y), (width, 22.0), whole);
                let part_width = (part.end - part.start) * width;
                page.rect((x + part.start * width, y), (part_width, 22.0), filled(colour));
            }
        }
        page.finish(title, height)
    }
}

/// A block whose whole is `long` columns, and the empty columns up to the next rank's.
fn block(screen: &Screen, rank: usize, held: Fill, long: usize) -> String {
    let (full, empty) = glyphs(screen);
    let of = |c: char, n: usize| c.to_string().repeat(n);
    let digit = char::from_digit((rank % 10) as u32, 10).unwrap_or(full);
    let drawn = match held {
        Fill::Same => of(full, long),
        Fill::Own => screen.rank(rank, of(digit, long)),
        Fill::Slice { index, of: parts } => {
            let edge = |part: usize| (part * long / parts.max(1)).min(long);
            // A slice has a column, even where the whole has fewer columns than slices.
            let from = edge(index).min(long.saturating_sub(1));
            let to = edge(index + 1).max(from + 1).min(long);
            let mine = screen.rank(rank, of(digit, to - from));
            format!("{}{mine}{}", of(empty, from), of(empty, long - to))
        }
    };
    drawn + &" ".repeat(BLOCK - long + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zero_1(ranks: usize) -> Holdings<'static> {
        let row = |name, held: &dyn Fn(usize) -> Fill, bytes| Holding {
            name,
            ranks: (0..ranks).map(held).collect(),
            bytes,
        };
        Holdings {
            rows: vec![
                row("data", &|_| Fill::Own, 6_144.0),
                row("parameters", &|_| Fill::Same, 3_216_384.0),
                row(
                    "optimizer",
                    &|rank| Fill::Slice { index: rank, of: ranks },
                    6_432_768.0 / ranks as f64,
                ),
            ],
            note: "Optimizer states are sharded.".into(),
        }
    }

    #[test]
    fn the_terminal_shows_columns_of_blocks() {
        let expected = "
              rank 0        rank 1        rank 2        per rank
  data        0             1             2             6.14 kB
  parameters  ██████        ██████        ██████        3.22 MB
  optimizer   0000░░░░░░░░  ░░░░1111░░░░  ░░░░░░░░2222  2.14 MB
  Optimizer states are sharded.";
        assert_eq!(zero_1(3).render(&Screen::plain()), expected.trim_start_matches('\n'));
    }

    /// Two blocks of one picture are in proportion to their bytes, to a column or to a unit of the
    /// SVG.
    #[test]
    fn blocks_are_to_one_scale() {
        let row = |bytes| Holding { name: "data", ranks: vec![Fill::Same], bytes };
        for bytes in [1e6, 2e6, 2.4e6, 7e6, 12e6] {
            let drawing = Holdings { rows: vec![row(bytes), row(12e6)], note: String::new() };
            let text = drawing.render(&Screen::plain());
            let drawn: Vec<usize> =
                text.lines().skip(1).map(|line| line.matches('█').count()).collect();
            assert!((drawn[0] as f64 - bytes / 1e6).abs() <= 0.5 && drawn[1] == 12, "{text}");
            let svg = drawing.svg("two blocks");
            let filled = svg.lines().filter(|line| line.contains(SAME));
            let widths = filled
                .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap());
            let widths: Vec<f64> = widths.map(|width| width.parse().unwrap()).collect();
            assert!((widths[0] / widths[1] - bytes / 12e6).abs() < 0.01, "{svg}");
        }
    }

    /// Seven slices of a block that is six columns long: each has a column.
    #[test]
    fn a_slice_is_never_invisible() {
        let slices = |name, bytes| Holding {
            name,
            ranks: (0..4).map(|index| Fill::Slice { index: 2 * index, of: 7 }).collect(),
            bytes,
        };
        let drawing = Holdings {
            rows: vec![slices("small", 1e6), slices("large", 2e6)],
            note: String::new(),
        };
        let text = drawing.render(&Screen::plain());
        for rank in ['0', '1', '2', '3'] {
            assert!(text.lines().skip(1).all(|line| line.contains(rank)), "{text}");
        }
    }

    #[test]
    fn many_ranks_stay_within_the_width_and_are_counted() {
        let text = zero_1(7).render(&Screen::plain());
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.contains("3 more ranks like these."), "{text}");
    }

    #[test]
    fn the_svg_has_a_column_per_rank_in_the_ranks_colours() {
        let svg = zero_1(3).svg("ZeRO-1");
        for rank in 0..3 {
            assert!(svg.contains(&format!(">rank {rank}<")) && svg.contains(rank_colour(rank)));
        }
        // Three columns; nine frames of blocks and nine fills.
        assert_eq!(svg.matches("<rect").count(), 3 + 9 + 9);
        assert_eq!(svg.matches(SAME).count(), 3);
        assert!(!svg.contains("\n\n"));
    }
}
