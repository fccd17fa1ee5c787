//! One buffer, cut in several ways: which rank holds which elements.

use super::scene::{Look, Scene};
use super::screen::Screen;
use super::svg::rank_colour;
use super::text::{pad_right, widest};

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

/// Ways to cut the buffer, one per row, each with its name and its pieces from the first element
/// on.
#[derive(Clone, Debug)]
pub struct Slices(pub Vec<(String, Vec<Piece>)>);

impl Slices {
    /// The rows as text, four columns per element. Padding is a row of dashes.
    pub fn render(&self, screen: &Screen) -> String {
        self.scene(screen).text()
    }

    /// The rows as an inline SVG: a box for each piece in its rank's colour, a dashed one for
    /// padding.
    pub fn svg(&self, title: &str) -> String {
        self.scene(&Screen::plain()).svg(title)
    }

    fn scene(&self, screen: &Screen) -> Scene {
        const ELEMENT: usize = 4;
        let bar = screen.either("│", "|");
        let dash = screen.either("– ", "- ");
        let names = 2 + widest(self.0.iter().map(|row| &row.0)) + 2;
        let mut scene = Scene::new(names, 28.0);
        for (row, (name, pieces)) in self.0.iter().enumerate() {
            scene.words(row, 2, name);
            let mut column = names;
            for piece in pieces.iter().filter(|piece| piece.numel > 0) {
                let width = ELEMENT * piece.numel;
                let colour = piece.rank.map_or("currentColor", rank_colour);
                let look = match (piece.padding, piece.rank) {
                    (true, _) => Look::Dashed(colour),
                    (false, None) => Look::Outlined(colour),
                    (false, Some(_)) => Look::Tinted(colour),
                };
                let inside: String = if piece.padding {
                    dash.repeat(width / 2)
                } else {
                    piece.label.clone()
                };
                let inside: String = inside.chars().take(width - 1).collect();
                let words = pad_right(&inside, width - 1);
                scene.sign(row, column, bar);
                scene.boxed((row, column, width), &words, look, &piece.label);
                column += width;
            }
            scene.sign(row, column, bar);
        }
        scene
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
                vec![piece("rank 0", 2, Some(0), false), piece("2", 2, Some(1), true)],
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
        assert_eq!(slices().render(&Screen::plain()), expected.trim_matches('\n'));
        assert!(slices().render(&Screen::plain_ascii()).is_ascii());
    }

    #[test]
    fn a_page_has_a_box_for_each_piece_and_dashes_around_padding() {
        let svg = slices().svg("two ranks");
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches("stroke-dasharray").count()),
            (4, 1),
            "{svg}"
        );
        assert!(!svg.contains("\n\n"));
    }
}
