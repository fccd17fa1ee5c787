//! The same pictures for pages: inline SVG for the book and for notebooks.
//!
//! Lines and letters have the page's colour (`currentColor`) and its font, and fills have a middle
//! tone. So a picture can be read on light and on dark pages, and needs no network. It is never
//! wider than its column, so it needs no scroll bar.

use super::activity::Activity;
use super::colour;
use super::text::columns;
use std::fmt::{Display, Write};

/// Units of a picture's width; a letter is about 7 wide and 13 high.
pub const WIDTH: f64 = 480.0;

/// Room for a letter, which is 13 high; most are narrower.
pub const LETTER: f64 = 8.5;

/// A place of a picture, in units from its upper left corner.
pub type Point = (f64, f64);

/// What of a line of text is at its place.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture while it is drawn. `style` is what SVG's attributes say: `fill="none"`.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// A line of text on the base line at `y`; no words are no text.
    pub fn text(&mut self, (x, y): Point, anchor: Anchor, words: impl Display) {
        let words = words.to_string();
        if words.is_empty() {
            return;
        }
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.add(format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(&words)
        ));
    }

    /// A box: its upper left corner and its size.
    pub fn rect(&mut self, (x, y): Point, (width, height): Point, style: impl Display) {
        self.add(format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {style}/>"
        ));
    }

    pub fn circle(&mut self, (x, y): Point, radius: f64, style: impl Display) {
        self.add(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {style}/>"));
    }

    /// A straight line of the page's colour.
    pub fn line(&mut self, from: Point, to: Point, style: impl Display) {
        self.add(format!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" {style}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A line from point to point.
    pub fn polyline(&mut self, points: impl Iterator<Item = Point>, style: impl Display) {
        // Spaces between all numbers: 1,234 could be one.
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        self.add(format!("<polyline points=\"{}\" fill=\"none\" {style}/>", points.join(" ")));
    }

    /// Any element.
    pub fn add(&mut self, element: impl Display) {
        let _ = writeln!(self.0, "{element}"); // a String takes everything
    }

    /// The picture of this height, with `title` for those who do not see it. Its letters are as
    /// large as a page's usually are, where there is room: 13 of 480 units, on 44 times 13 pixels.
    pub fn finish(self, title: &str, height: f64) -> String {
        self.finish_wide(title, (WIDTH, height), 13.0)
    }

    /// The same for a picture of another size. A wider one keeps its letters' size, and where it
    /// has no room it is never so small that its smallest letters have less than 10 pixels.
    pub fn finish_wide(self, title: &str, (width, height): Point, smallest: f64) -> String {
        let mut style = format!("max-width:{}em", 44.0 * width / WIDTH);
        if width > WIDTH {
            let _ = write!(style, ";min-width:{:.1}em", width * 10.0 / (13.0 * smallest));
        }
        format!(
            "<svg class=\"figure\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\" width=\"100%\" \
             style=\"{style}\" font-size=\"13\" fill=\"currentColor\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n{}</svg>",
            escape(title),
            self.0
        )
    }
}

/// The room that a text needs.
pub fn width(words: &str) -> f64 {
    LETTER * columns(words) as f64
}

/// The places of things of these widths, which stand beside each other with a gap between them, in
/// as many rows as they need: each one's x and its row.
pub fn in_rows(widths: impl IntoIterator<Item = f64>, gap: f64) -> Vec<(f64, usize)> {
    let mut x = 0.0;
    let mut row = 0;
    let mut places = Vec::new();
    for width in widths {
        if x + width > WIDTH {
            x = 0.0;
            row += 1;
        }
        places.push((x, row));
        x += width + gap;
    }
    places
}

/// An SVG that a notebook shows: as the last value of a cell, the kernel (evcxr) calls
/// [`Picture::evcxr_display`].
pub struct Picture(pub String);

impl Picture {
    /// Hands the picture to the notebook, as HTML: its lines and letters then have the page's
    /// colour.
    pub fn evcxr_display(&self) {
        println!("EVCXR_BEGIN_CONTENT text/html\n{}\nEVCXR_END_CONTENT", self.0);
    }
}

/// The colour of rank `rank`.
pub fn rank_colour(rank: usize) -> &'static str {
    colour::of_rank(rank).page
}

/// The colour of a curve, an algorithm or a kind of bytes, which is no rank's.
pub fn curve_colour(look: usize) -> &'static str {
    colour::of_curve(look).page
}

/// The colour of what a rank does; the page's own for waiting.
pub fn activity_colour(activity: Activity) -> &'static str {
    colour::of_activity(activity).map_or("currentColor", |hue| hue.page)
}

/// `text` as SVG may hold it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A fill.
pub fn filled(colour: &str) -> String {
    format!("fill=\"{colour}\"")
}

/// A light fill with a line around it: letters can be read on it.
pub fn tinted(colour: &str) -> String {
    format!("fill=\"{colour}\" fill-opacity=\"0.35\" stroke=\"{colour}\"")
}

/// A line around nothing.
pub fn outlined(colour: &str) -> String {
    format!("fill=\"none\" stroke=\"{colour}\"")
}

/// Dashes around nothing.
pub fn dashed(colour: &str) -> String {
    outlined(colour) + " stroke-dasharray=\"2 2\""
}

/// A line of this width around nothing, with rounded corners.
pub fn framed(colour: &str, line: f64) -> String {
    format!("{} stroke-width=\"{line}\" rx=\"5\"", outlined(colour))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_full_where_the_next_thing_would_leave_the_page() {
        let places = [(0.0, 0), (163.0, 0), (326.0, 0), (0.0, 1)];
        assert_eq!(in_rows([153.0; 4], 10.0), places);
        assert_eq!(in_rows([153.0, 153.0, 155.0], 10.0)[2], (0.0, 1));
    }
}
