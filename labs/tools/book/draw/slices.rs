//! One buffer, cut in several ways: which rank holds which elements.

use kit::show::svg::rank_colour;
use kit::show::{Look, Scene};

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
    /// The rows as an inline SVG: a box for each piece in its rank's colour, a dashed one for
    /// padding.
    pub fn svg(&self, title: &str) -> String {
        let widest = self.0.iter().map(|row| row.0.chars().count()).max();
        let names = 2 + widest.unwrap_or(0) + 2;
        let mut scene = Scene::new(names, 28.0);
        for (row, (name, pieces)) in self.0.iter().enumerate() {
            scene.words(row, 2, name);
            let mut column = names;
            for piece in pieces.iter().filter(|piece| piece.numel > 0) {
                let colour = piece.rank.map_or("currentColor", rank_colour);
                let look = match (piece.padding, piece.rank) {
                    (true, _) => Look::Dashed(colour),
                    (false, None) => Look::Outlined(colour),
                    (false, Some(_)) => Look::Tinted(colour),
                };
                scene.boxed((row, column, piece.numel), "", look, &piece.label);
                column += piece.numel;
            }
        }
        scene.svg(title)
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
