//! Boxes, words, lines and arrows, where a figure says.
//!
//! Letters are as large as in all other pictures. A picture that needs more than the usual width is
//! wider on a page, and scrolls in its place on a phone.

use kit::show::svg::{
    Anchor, Page, Point, WIDTH, curve_colour, dashed, filled, outlined, rank_colour, tinted,
};
use std::fmt::Display;

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ink {
    /// Nothing: the page's own.
    Page,
    /// What every rank holds alike.
    Same,
    /// What this rank holds alone.
    Rank(usize),
    /// A kind of bytes, or a curve: no rank's.
    Kind(usize),
}

impl Ink {
    fn colour(self) -> &'static str {
        match self {
            Ink::Page => "currentColor",
            Ink::Same => "#8a8f98",
            Ink::Rank(rank) => rank_colour(rank),
            Ink::Kind(kind) => curve_colour(kind),
        }
    }
}

/// How a box is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coat {
    /// Without words: they could not be read.
    Full,
    /// Lightly filled: words can be read on it.
    Light,
    /// A line around nothing.
    Line,
    /// Dashes around nothing.
    Dashes,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    Thin,
    Thick,
    Dashes,
    /// Thick, and in pieces.
    Pieces,
    /// Thin, with a head at its end.
    Arrow,
}

/// A drawing on a page, while it is drawn.
pub struct Sketch {
    page: Page,
    width: f64,
}

impl Default for Sketch {
    /// As wide as most pictures: 480 units.
    fn default() -> Sketch {
        Sketch::wide(WIDTH)
    }
}

impl Sketch {
    /// An empty drawing of this width.
    pub fn wide(width: f64) -> Sketch {
        Sketch { page: Page::default(), width }
    }

    /// Words that begin at their place, have it in their middle, or end there, on the base line.
    pub fn words(&mut self, at: Point, anchor: Anchor, words: impl Display) {
        self.page.text(at, anchor, words);
    }

    /// A box, and words in its middle.
    pub fn boxed(&mut self, corner: Point, size: Point, ink: Ink, coat: Coat, words: &str) {
        let colour = ink.colour();
        let style = match coat {
            Coat::Full => filled(colour),
            Coat::Light => tinted(colour),
            Coat::Line => outlined(colour),
            Coat::Dashes => dashed(colour),
        };
        self.page.rect(corner, size, format!("{style} rx=\"2\""));
        let middle = (corner.0 + size.0 / 2.0, corner.1 + size.1 / 2.0 + 4.5);
        self.page.text(middle, Anchor::Middle, words);
    }

    /// A straight line.
    pub fn line(&mut self, from: Point, to: Point, ink: Ink, stroke: Stroke) {
        let (width, style) = match stroke {
            Stroke::Thin | Stroke::Arrow => (1.5, ""),
            Stroke::Thick => (5.0, ""),
            Stroke::Dashes => (1.5, " stroke-dasharray=\"4 3\""),
            Stroke::Pieces => (5.0, " stroke-dasharray=\"3 3\""),
        };
        let style = format!("stroke=\"{}\" stroke-width=\"{width}\"{style}", ink.colour());
        self.page.polyline([from, to].into_iter(), style);
        if stroke == Stroke::Arrow {
            self.head(from, to, ink);
        }
    }

    /// A line from point to point.
    pub fn curve(&mut self, points: impl Iterator<Item = Point>, ink: Ink) {
        let style = format!("stroke=\"{}\" stroke-width=\"2\"", ink.colour());
        self.page.polyline(points, style);
    }

    /// What is between a curve and the line at `base`, lightly filled.
    pub fn area(&mut self, points: &[Point], base: f64, ink: Ink) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return;
        };
        let all: Vec<String> = [(first.0, base)]
            .iter()
            .chain(points)
            .chain([&(last.0, base)])
            .map(|(x, y)| format!("{x:.1} {y:.1}"))
            .collect();
        let style = tinted(ink.colour());
        self.page.add(format!("<polygon points=\"{}\" {style}/>", all.join(" ")));
    }

    /// A point of a curve.
    pub fn dot(&mut self, at: Point, ink: Ink) {
        self.page.circle(at, 5.0, filled(ink.colour()));
    }

    /// The head of an arrow, two short lines.
    fn head(&mut self, from: Point, to: Point, ink: Ink) {
        let along = (to.0 - from.0, to.1 - from.1);
        let long = along.0.hypot(along.1).max(1e-9);
        let (x, y) = (7.0 * along.0 / long, 7.0 * along.1 / long);
        let side = |turn: f64| (to.0 - x + turn * y / 1.6, to.1 - y - turn * x / 1.6);
        let style = format!("stroke=\"{}\" stroke-width=\"1.5\"", ink.colour());
        self.page.polyline([side(1.0), to, side(-1.0)].into_iter(), style);
    }

    /// The drawing as an inline SVG, with `title` for those who do not see it.
    pub fn svg(self, title: &str, height: f64) -> String {
        self.page.finish_wide(title, (self.width, height), 13.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_has_what_was_drawn() {
        let mut sketch = Sketch::default();
        sketch.boxed((0.0, 0.0), (40.0, 20.0), Ink::Rank(1), Coat::Light, "two");
        sketch.line((40.0, 10.0), (60.0, 10.0), Ink::Page, Stroke::Arrow);
        sketch.area(&[(0.0, 30.0), (9.0, 25.0)], 40.0, Ink::Kind(0));
        let svg = sketch.svg("a box", 40.0);
        assert!(svg.contains(">two<") && svg.contains(rank_colour(1)));
        // The arrow is a line and a head.
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert!(svg.contains("points=\"0.0 40.0 0.0 30.0 9.0 25.0 9.0 40.0\""));
        assert!(svg.contains("max-width:44em\""), "{svg}");
    }

    /// Letters are as large in a wide picture as in the others, and at least 10 pixels on a phone.
    #[test]
    fn a_wide_picture_is_wider_on_a_page() {
        let svg = Sketch::wide(600.0).svg("wide", 10.0);
        assert!(svg.contains("max-width:55em;min-width:35.5em"), "{svg}");
        assert!(svg.contains("viewBox=\"0 0 600 10\""), "{svg}");
    }
}
