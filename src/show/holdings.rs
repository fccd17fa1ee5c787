//! The drawing of which rank holds what: devices are columns, each with its data, parameters, gradients and optimizer state.
//!
//! All strategies use this drawing, in the terminal and as SVG. Data that all ranks hold alike have one colour on every
//! device. Data that only one rank holds have that rank's colour, and its number where there is no colour.

use super::screen::Screen;
use super::svg::{WIDTH, area, picture, rank_colour, text};
use super::text::{columns, pad_right};
use std::fmt::Write;

/// Width of a block in the terminal, in columns.
const BLOCK: usize = 12;

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
    /// Bytes per rank, in words.
    pub bytes: String,
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

    /// The drawing as text. Ranks that the screen has no room for are left out, and the last line says how many.
    pub fn render(&self, screen: &Screen) -> String {
        let name = self.rows.iter().map(|row| columns(row.name)).max().unwrap_or(0);
        let bytes = self.rows.iter().map(|row| columns(&row.bytes)).max().unwrap_or(0).max(columns("per rank"));
        let room = screen.width.saturating_sub(2 + name + 2 + bytes) / (BLOCK + 2);
        let shown = self.ranks().min(room.max(1));
        let head = |rank: usize| pad_right(&screen.rank(rank, format!("rank {rank}")), BLOCK + 2);
        let heads: String = (0..shown).map(head).collect();
        let mut lines = vec![format!("{}{heads}{}", " ".repeat(name + 4), screen.dim("per rank"))];
        for row in &self.rows {
            let blocks = row.ranks.iter().take(shown).enumerate();
            let blocks: String = blocks.map(|(rank, &held)| format!("{}  ", block(screen, rank, held))).collect();
            lines.push(format!("  {}  {blocks}{}", pad_right(row.name, name), row.bytes));
        }
        let left_out = self.ranks() - shown;
        let more = if left_out > 0 { format!("{left_out} more ranks like these. ") } else { String::new() };
        let note = screen.wrap(&format!("{more}{}", self.note), 2);
        lines.extend((!note.trim().is_empty()).then_some(note));
        lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
    }

    /// The drawing as an inline SVG.
    pub fn svg(&self, title: &str) -> String {
        const NAMES: f64 = 92.0;
        const BYTES: f64 = 72.0;
        const ROW: f64 = 30.0;
        let ranks = self.ranks().max(1);
        let column = ((WIDTH - NAMES - BYTES) / ranks as f64).min(160.0);
        let height = 34.0 + ROW * self.rows.len() as f64;
        let mut body = text(NAMES + column * ranks as f64 + 8.0, 18.0, "start", "per rank");
        for rank in 0..ranks {
            let x = NAMES + column * rank as f64;
            body += &text(x + column / 2.0, 18.0, "middle", &format!("rank {rank}"));
            let _ = writeln!(
                body,
                "<rect x=\"{:.1}\" y=\"4\" width=\"{:.1}\" height=\"{:.1}\" rx=\"6\" fill=\"none\" stroke=\"{}\" \
                 stroke-width=\"2\"/>",
                x + 3.0,
                column - 6.0,
                height - 8.0,
                rank_colour(rank)
            );
        }
        for (i, row) in self.rows.iter().enumerate() {
            let y = 28.0 + ROW * i as f64;
            body += &text(0.0, y + 16.0, "start", row.name);
            body += &text(NAMES + column * ranks as f64 + 8.0, y + 16.0, "start", &row.bytes);
            for (rank, &held) in row.ranks.iter().enumerate() {
                let (x, width) = (NAMES + column * rank as f64 + 11.0, column - 22.0);
                let (from, to, colour) = match held {
                    Fill::Same => (0.0, 1.0, SAME),
                    Fill::Own => (0.0, 1.0, rank_colour(rank)),
                    Fill::Slice { index, of } => {
                        let of = of.max(1) as f64;
                        (index as f64 / of, (index + 1) as f64 / of, rank_colour(rank))
                    }
                };
                let _ = writeln!(
                    body,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"22\" fill=\"none\" \
                     stroke=\"currentColor\" stroke-opacity=\"0.35\"/>"
                );
                body += &area((x + from * width, y), ((to - from) * width, 22.0), colour);
            }
        }
        picture(title, height, &body)
    }
}

fn block(screen: &Screen, rank: usize, held: Fill) -> String {
    let (full, empty) = super::bars::glyphs(screen);
    let of = |c: char, n: usize| c.to_string().repeat(n);
    let digit = char::from_digit((rank % 10) as u32, 10).unwrap_or(full);
    match held {
        Fill::Same => of(full, BLOCK),
        Fill::Own => screen.rank(rank, of(digit, BLOCK)),
        Fill::Slice { index, of: parts } => {
            let edge = |part: usize| (part * BLOCK / parts.max(1)).min(BLOCK);
            let (from, to) = (edge(index), edge(index + 1));
            let mine = screen.rank(rank, of(digit, to - from));
            format!("{}{mine}{}", of(empty, from), of(empty, BLOCK - to))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zero_1(ranks: usize) -> Holdings<'static> {
        let row = |name, held: &dyn Fn(usize) -> Fill, bytes: &str| Holding {
            name,
            ranks: (0..ranks).map(held).collect(),
            bytes: bytes.to_string(),
        };
        Holdings {
            rows: vec![
                row("data", &|_| Fill::Own, "6 kB"),
                row("parameters", &|_| Fill::Same, "3.22 MB"),
                row("optimizer", &|rank| Fill::Slice { index: rank, of: ranks }, "1.61 MB"),
            ],
            note: "Optimizer states are sharded.".into(),
        }
    }

    #[test]
    fn the_terminal_shows_columns_of_blocks() {
        let expected = "
              rank 0        rank 1        rank 2        per rank
  data        000000000000  111111111111  222222222222  6 kB
  parameters  ████████████  ████████████  ████████████  3.22 MB
  optimizer   0000░░░░░░░░  ░░░░1111░░░░  ░░░░░░░░2222  1.61 MB
  Optimizer states are sharded.";
        assert_eq!(zero_1(3).render(&Screen::plain()), expected.trim_start_matches('\n'));
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
