//! One buffer, cut in several ways: which rank holds which elements.

use super::screen::Screen;
use super::svg::{WIDTH, picture, rank_colour, text};
use super::text::{columns, pad_right};

/// Elements that follow each other.
#[derive(Clone, Debug)]
pub struct Piece {
    pub label: String,
    pub numel: usize,
    /// The rank that holds them, if it is one.
    pub rank: Option<usize>,
    /// Whether they are padding.
    pub padding: bool,
}

/// Ways to cut the buffer, one per row, each with its name and its pieces from the first element on.
#[derive(Clone, Debug)]
pub struct Slices(pub Vec<(String, Vec<Piece>)>);

impl Slices {
    /// The elements of the longest row.
    fn numel(&self) -> usize {
        self.0
            .iter()
            .map(|(_, pieces)| pieces.iter().map(|piece| piece.numel).sum())
            .max()
            .unwrap_or(0)
    }

    /// The rows as text, four columns per element. Padding is a row of dashes.
    pub fn render(&self, screen: &Screen) -> String {
        let gutter = self
            .0
            .iter()
            .map(|(name, _)| columns(name))
            .max()
            .unwrap_or(0);
        let (bar, dash) = if screen.ascii {
            ("|", "- ")
        } else {
            ("│", "– ")
        };
        let row = |(name, pieces): &(String, Vec<Piece>)| {
            let cell = |piece: &Piece| {
                let width = 4 * piece.numel - 1;
                let inside = if piece.padding {
                    dash.repeat(2 * piece.numel)
                } else {
                    piece.label.clone()
                };
                format!(
                    "{bar}{}",
                    pad_right(&inside.chars().take(width).collect::<String>(), width)
                )
            };
            let cells: String = pieces
                .iter()
                .filter(|piece| piece.numel > 0)
                .map(cell)
                .collect();
            format!("  {}  {cells}{bar}", pad_right(name, gutter))
        };
        self.0.iter().map(row).collect::<Vec<_>>().join("\n")
    }

    /// The rows as an inline SVG: a box for each piece in its rank's colour, a dashed one for padding.
    pub fn svg(&self, title: &str) -> String {
        const GUTTER: f64 = 70.0;
        const ROW: f64 = 34.0;
        let wide = (WIDTH - GUTTER - 2.0) / self.numel().max(1) as f64;
        let mut body = String::new();
        for (row, (name, pieces)) in self.0.iter().enumerate() {
            let y = 1.0 + ROW * row as f64;
            body += &text(0.0, y + 17.0, "start", name);
            let mut begin = 0;
            for piece in pieces {
                let x = GUTTER + wide * begin as f64;
                let width = wide * piece.numel as f64;
                let colour = piece.rank.map_or("currentColor", rank_colour);
                let fill = match (piece.padding, piece.rank) {
                    (true, _) | (_, None) => "fill=\"none\"".to_string(),
                    (false, Some(_)) => format!("fill=\"{colour}\" fill-opacity=\"0.35\""),
                };
                let dashed = if piece.padding {
                    " stroke-dasharray=\"3 3\""
                } else {
                    ""
                };
                body += &format!(
                    "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"24\" {fill} stroke=\"{colour}\"{dashed}/>\n",
                    x + 1.0,
                    width - 2.0
                );
                body += &text(x + width / 2.0, y + 17.0, "middle", &piece.label);
                begin += piece.numel;
            }
        }
        picture(title, ROW * self.0.len() as f64 - 6.0, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices() -> Slices {
        let piece = |label: &str, numel, rank, padding| Piece {
            label: label.to_string(),
            numel,
            rank,
            padding,
        };
        Slices(vec![
            (
                "2 ranks".to_string(),
                vec![
                    piece("rank 0", 2, Some(0), false),
                    piece("2", 2, Some(1), true),
                ],
            ),
            (
                "whole".to_string(),
                vec![piece("a", 1, None, false), piece("b", 1, None, false)],
            ),
        ])
    }

    #[test]
    fn rows_have_the_same_scale() {
        let expected = "
  2 ranks  │rank 0 │– – – –│
  whole    │a  │b  │
";
        assert_eq!(
            slices().render(&Screen::plain()),
            expected.trim_matches('\n')
        );
        assert!(
            slices()
                .render(&Screen {
                    ascii: true,
                    ..Screen::plain()
                })
                .is_ascii()
        );
    }

    #[test]
    fn a_page_has_a_box_for_each_piece_and_dashes_around_padding() {
        let svg = slices().svg("two ranks");
        assert_eq!(
            (
                svg.matches("<rect").count(),
                svg.matches("stroke-dasharray").count()
            ),
            (4, 1),
            "{svg}"
        );
        assert!(!svg.contains("\n\n"));
    }
}
