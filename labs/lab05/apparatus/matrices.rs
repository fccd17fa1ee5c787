//! Matrices of which each rank holds some elements: the drawing of a matrix product that ranks
//! share, in the terminal and as SVG.

use kit::show::svg::rank_colour;
use kit::show::{Look, Scene, Screen, columns, glyphs, pad_right, widest};

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
        self.scene(screen).text()
    }

    /// The drawing as an inline SVG: an element that the rank holds has the rank's colour.
    pub fn svg(&self, title: &str) -> String {
        self.scene(&Screen::plain()).svg(title)
    }

    fn scene(&self, screen: &Screen) -> Scene {
        const NAMES: usize = 8;
        let missing = glyphs(screen).1.to_string();
        let shown = |element: &Option<i64>| match element {
            Some(number) => number.to_string(),
            None => missing.clone(),
        };
        let cell = 1 + widest(self.ranks.iter().flatten().flatten().flatten().map(shown));
        let mut scene = Scene::new(NAMES, 20.0);
        // The column after each matrix's sign, and the one after the matrix.
        let mut columns_of = Vec::new();
        let mut column = NAMES;
        for (i, (name, sign)) in self.heads.iter().enumerate() {
            let rows = self.ranks.iter().flat_map(|rank| &rank[i]);
            let widest = rows.map(|row| row.len() * cell - 1).max().unwrap_or(0);
            let start = column + 2 + columns(&signed(screen, sign)) + 2;
            column = start + widest.max(columns(name));
            scene.number((0, start, widest), &pad_right(name, widest));
            columns_of.push(start);
        }
        let mut top = 1;
        for (rank, matrices) in self.ranks.iter().enumerate() {
            let height = matrices.iter().map(Vec::len).max().unwrap_or(0);
            scene.words(top, 2, &screen.rank(rank, format!("rank {rank}")));
            let colour = rank_colour(rank);
            for (i, matrix) in matrices.iter().enumerate() {
                let start = columns_of[i];
                let sign = signed(screen, self.heads[i].1);
                let middle = top + height.saturating_sub(1) / 2;
                scene.words(middle, start - 2 - columns(&sign), &sign);
                let above = top + (height - matrix.len()) / 2;
                for (row, elements) in (above..).zip(matrix) {
                    for (j, element) in elements.iter().enumerate() {
                        // The column before a number is a part of its box.
                        let place = (row, start + j * cell - 1, cell);
                        match element {
                            Some(number) => {
                                let number = number.to_string();
                                scene.boxed(place, &number, Look::Tinted(colour), &number);
                            }
                            None => scene.boxed(place, &missing, Look::Outlined(colour), ""),
                        }
                    }
                }
            }
            top += height + usize::from(height > 1);
        }
        scene
    }
}

fn signed(screen: &Screen, sign: &str) -> String {
    if screen.ascii {
        sign.replace('→', "->").replace('·', "*")
    } else {
        sign.to_owned()
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
