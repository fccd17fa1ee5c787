//! Matrices of which each rank holds some elements: the drawing of a matrix product that ranks share, in the terminal and as
//! SVG.

use super::bars::glyphs;
use super::screen::Screen;
use super::svg::{WIDTH, picture, rank_colour, text};
use super::text::{columns, pad_left, pad_right};
use std::fmt::Write;

/// A matrix, row by row. An element that is not on the rank is None.
pub type Matrix = Vec<Vec<Option<i64>>>;

/// One rank's matrices, side by side, for each rank.
#[derive(Clone, Debug)]
pub struct Matrices<'a> {
    /// A name for each matrix, and the sign before it.
    pub heads: Vec<(&'a str, &'a str)>,
    pub ranks: Vec<Vec<Matrix>>,
}

impl Matrices<'_> {
    /// The drawing as text: `░` is an element that other ranks hold.
    pub fn render(&self, screen: &Screen) -> String {
        let missing = glyphs(screen).1.to_string();
        let shown =
            |element: &Option<i64>| element.map_or(missing.clone(), |number| number.to_string());
        let cells = || self.ranks.iter().flatten().flatten().flatten();
        let cell = cells()
            .map(|element| columns(&shown(element)))
            .max()
            .unwrap_or(1);
        let sign = |(_, sign): &(&str, &str)| {
            if screen.ascii {
                sign.replace('→', "->").replace('·', "*")
            } else {
                sign.to_string()
            }
        };
        let width = |column: usize| {
            let rows = self.ranks.iter().flat_map(|rank| &rank[column]);
            rows.map(|row| row.len() * (cell + 1) - 1)
                .max()
                .unwrap_or(0)
                .max(columns(self.heads[column].0))
        };
        let mut head = " ".repeat(8);
        for (column, one) in self.heads.iter().enumerate() {
            head += &format!(
                "  {}  {}",
                " ".repeat(columns(&sign(one))),
                pad_right(one.0, width(column))
            );
        }
        let mut lines = vec![head.trim_end().to_string()];
        for (rank, matrices) in self.ranks.iter().enumerate() {
            let height = matrices.iter().map(Vec::len).max().unwrap_or(0);
            let middle = height.saturating_sub(1) / 2;
            lines.extend((rank > 0 && height > 1).then(String::new));
            for row in 0..height {
                let name = if row == 0 {
                    format!("  {}", screen.rank(rank, format!("rank {rank}")))
                } else {
                    String::new()
                };
                let mut line = pad_right(&name, 8);
                for (column, (matrix, one)) in matrices.iter().zip(&self.heads).enumerate() {
                    let above = (height - matrix.len()) / 2;
                    let row_of_it = row.checked_sub(above).and_then(|row| matrix.get(row));
                    let elements: Vec<String> = row_of_it
                        .into_iter()
                        .flatten()
                        .map(|x| pad_left(&shown(x), cell))
                        .collect();
                    let sign = pad_right(
                        if row == middle {
                            sign(one)
                        } else {
                            String::new()
                        }
                        .as_str(),
                        columns(&sign(one)),
                    );
                    line += &format!(
                        "  {sign}  {}",
                        pad_right(&elements.join(" "), width(column))
                    );
                }
                lines.push(line.trim_end().to_string());
            }
        }
        lines.join("\n")
    }

    /// The drawing as an inline SVG: an element that the rank holds has the rank's colour.
    pub fn svg(&self, title: &str) -> String {
        const NAMES: f64 = 52.0;
        const SIGN: f64 = 26.0;
        const ROW: f64 = 20.0;
        let of_first = |column: usize| {
            self.ranks
                .first()
                .and_then(|rank| rank[column].first())
                .map_or(0, Vec::len)
        };
        let all: usize = (0..self.heads.len()).map(of_first).sum();
        let cell =
            ((WIDTH - 2.0 - NAMES - SIGN * self.heads.len() as f64) / all.max(1) as f64).min(34.0);
        let mut body = String::new();
        let mut top = 26.0;
        for (rank, matrices) in self.ranks.iter().enumerate() {
            let height = matrices.iter().map(Vec::len).max().unwrap_or(0) as f64 * ROW;
            body += &text(
                0.0,
                top + height / 2.0 + 5.0,
                "start",
                &format!("rank {rank}"),
            );
            let mut x = NAMES;
            for (column, (matrix, (name, sign))) in matrices.iter().zip(&self.heads).enumerate() {
                body += &text(x + SIGN / 2.0, top + height / 2.0 + 5.0, "middle", sign);
                x += SIGN;
                if rank == 0 {
                    body += &text(
                        x + of_first(column) as f64 * cell / 2.0,
                        15.0,
                        "middle",
                        name,
                    );
                }
                let y = top + (height - matrix.len() as f64 * ROW) / 2.0;
                for (i, row) in matrix.iter().enumerate() {
                    for (j, element) in row.iter().enumerate() {
                        let left = x + j as f64 * cell;
                        let upper = y + i as f64 * ROW;
                        let opacity = if element.is_some() { 0.3 } else { 0.0 };
                        let _ = writeln!(
                            body,
                            "<rect x=\"{left:.1}\" y=\"{upper:.1}\" width=\"{cell:.1}\" height=\"{ROW}\" fill=\"{0}\" \
                             fill-opacity=\"{opacity}\" stroke=\"{0}\"/>",
                            rank_colour(rank)
                        );
                        let number = element.map_or(String::new(), |number| number.to_string());
                        body += &text(left + cell / 2.0, upper + 15.0, "middle", &number);
                    }
                }
                x += of_first(column) as f64 * cell;
            }
            top += height + 16.0;
        }
        picture(title, top - 8.0, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_and_who_holds_it() {
        let all = vec![vec![Some(1), Some(2)]];
        let left = vec![vec![Some(10), None]];
        let right = vec![vec![None, Some(-7)]];
        let drawing = Matrices {
            heads: vec![("X", ""), ("Y", "=")],
            ranks: vec![vec![all.clone(), left], vec![all, right]],
        };
        assert_eq!(
            drawing.render(&Screen::plain()),
            "            X         Y\n  rank 0     1  2  =  10  ░\n  rank 1     1  2  =   ░ -7"
        );
        let svg = drawing.svg("a product");
        assert!(
            svg.contains(">rank 1<") && svg.contains(">-7<") && svg.matches("<rect").count() == 8,
            "{svg}"
        );
    }
}
