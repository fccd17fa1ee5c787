//! A drawing that says once what is where, and becomes text for a terminal or an SVG for a page.
//!
//! Its grid has a row for each line of the terminal, and a column for each letter. On a page rows
//! are higher, and columns as wide as the page makes them, and boxes have fills and dashes.

use super::svg::{Anchor, Page, WIDTH, dashed, filled, outlined, tinted};
use super::text::{columns, pad_right};

/// Columns that text in a terminal is moved in by. A page needs no margin.
const INDENT: usize = 2;

/// Units of a page for a column with a name's letter.
const NAME: f64 = 7.6;

/// Where a thing is: its row, its first column, and how many columns it has.
pub type Place = (usize, usize, usize);

/// How a box looks on a page.
pub enum Look {
    /// Filled lightly with a colour.
    Tinted(&'static str),
    /// Empty, with a line in a colour around it.
    Outlined(&'static str),
    /// Empty, with dashes in a colour around it.
    Dashed(&'static str),
    /// A stripe for each colour, and room for those that are missing.
    Stripes(Vec<Option<&'static str>>),
}

/// Things on a grid.
pub struct Scene {
    /// The first columns, which have names.
    names: usize,
    /// Units of a page for a row.
    height: f64,
    things: Vec<Thing>,
}

struct Thing {
    place: Place,
    /// What a terminal shows, which ends with the columns if it has fewer letters. May contain
    /// colour codes.
    words: String,
    what: What,
}

/// What a page shows.
enum What {
    /// The words, from their first column on.
    Words,
    /// The words in the middle of their columns.
    Number,
    /// A box with words of its own.
    Box(Look, String),
    /// A fill behind all rows.
    Band(&'static str),
}

impl Scene {
    /// An empty drawing. Its first `names` columns have names, and its rows are `height` units high
    /// on a page.
    pub fn new(names: usize, height: f64) -> Scene {
        let things = Vec::new();
        Scene { names, height, things }
    }

    /// Words that begin at a column.
    pub fn words(&mut self, row: usize, column: usize, words: &str) {
        self.add((row, column, 0), words, What::Words);
    }

    /// Words at the end of their columns; on a page in the middle.
    pub fn number(&mut self, place: Place, words: &str) {
        self.add(place, words, What::Number);
    }

    /// Words at the end of their columns, and for a page a box with words of its own.
    pub fn boxed(&mut self, place: Place, words: &str, look: Look, on_a_page: &str) {
        self.add(place, words, What::Box(look, on_a_page.to_owned()));
    }

    /// A coloured band behind these columns, for a page alone. Bands come before what they are
    /// behind.
    pub fn band(&mut self, column: usize, width: usize, colour: &'static str) {
        self.add((0, column, width), "", What::Band(colour));
    }

    fn add(&mut self, place: Place, words: &str, what: What) {
        let words = words.to_owned();
        self.things.push(Thing { place, words, what });
    }

    fn rows(&self) -> usize {
        let rows = self.things.iter().map(|thing| thing.place.0 + 1);
        rows.max().unwrap_or(0)
    }

    /// The drawing as text, several lines without a line end at the last one. Things of a row come
    /// from left to right.
    pub fn text(&self) -> String {
        let mut lines = vec![String::new(); self.rows()];
        for Thing { place, words, .. } in &self.things {
            let (row, column, width) = *place;
            if words.is_empty() {
                continue;
            }
            let start = column + width.saturating_sub(columns(words));
            lines[row] = pad_right(&lines[row], start) + words;
        }
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        lines.join("\n")
    }

    /// The drawing as an inline SVG.
    pub fn svg(&self, title: &str) -> String {
        let ends = self.things.iter().map(|thing| {
            let (_, column, width) = thing.place;
            column + width
        });
        let names = NAME * (self.names - INDENT) as f64;
        let others = ends.max().unwrap_or(0).saturating_sub(self.names).max(1);
        let wide = (WIDTH - names) / others as f64;
        let x = |column: usize| match column.checked_sub(self.names) {
            Some(column) => names + wide * column as f64,
            None => NAME * column.saturating_sub(INDENT) as f64,
        };
        let bottom = self.height * self.rows() as f64;
        let mut page = Page::default();
        for thing in &self.things {
            let (row, column, width) = thing.place;
            let top = self.height * row as f64;
            let base = top + self.height / 2.0 + 4.5;
            let from = x(column);
            let to = x(column + width);
            let middle = ((from + to) / 2.0, base);
            match &thing.what {
                What::Words => page.text((from, base), Anchor::Start, &thing.words),
                What::Number => page.text(middle, Anchor::Middle, thing.words.trim()),
                What::Band(colour) => {
                    let faint = format!("{} fill-opacity=\"0.18\"", filled(colour));
                    page.rect((from, 0.0), (to - from, bottom), faint);
                }
                What::Box(look, words) => {
                    let corner = (from + 1.0, top + 2.0);
                    let size = (to - from - 2.0, self.height - 4.0);
                    look.draw(&mut page, corner, size);
                    page.text(middle, Anchor::Middle, words);
                }
            }
        }
        page.finish(title, bottom)
    }
}

impl Look {
    fn draw(&self, page: &mut Page, corner: (f64, f64), size: (f64, f64)) {
        match self {
            Look::Tinted(colour) => page.rect(corner, size, tinted(colour)),
            Look::Outlined(colour) => page.rect(corner, size, outlined(colour)),
            Look::Dashed(colour) => page.rect(corner, size, dashed(colour)),
            Look::Stripes(stripes) => {
                let width = size.0 / stripes.len().max(1) as f64;
                for (i, stripe) in stripes.iter().enumerate() {
                    if let Some(colour) = stripe {
                        let corner = (corner.0 + width * i as f64, corner.1);
                        page.rect(corner, (width, size.1), filled(colour));
                    }
                }
                let rounded = format!("{} rx=\"4\"", outlined("currentColor"));
                page.rect(corner, size, rounded);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, a number and a box, then a box without words in the terminal.
    fn scene() -> Scene {
        let mut scene = Scene::new(6, 20.0);
        scene.band(6, 4, "#123456");
        scene.words(0, 2, "one");
        scene.number((0, 6, 4), "7");
        scene.boxed((0, 10, 4), "12", Look::Tinted("#654321"), "twelve");
        scene.boxed((1, 10, 4), "", Look::Stripes(vec![None, Some("#654321")]), "");
        scene
    }

    #[test]
    fn text_has_each_thing_at_its_columns() {
        assert_eq!(scene().text(), "  one    7  12\n");
    }

    /// Names have the room of their letters, and all other columns share the rest of the page.
    #[test]
    fn a_page_has_the_same_things_at_the_same_columns() {
        let svg = scene().svg("two rows");
        let names = NAME * 4.0;
        let quarter = (WIDTH - names) / 8.0;
        let at = |place: f64| format!("x=\"{place:.1}\"");
        assert!(svg.contains(&format!("<text {} y=\"14.5\" text-anchor=\"start\">one<", at(0.0))));
        let number = at(names + 2.0 * quarter);
        assert!(svg.contains(&format!("<text {number} y=\"14.5\" text-anchor=\"middle\">7<")));
        let twelve = at(names + 6.0 * quarter);
        assert!(svg.contains(&format!("<text {twelve} y=\"14.5\" text-anchor=\"middle\">twelve<")));
        // The band, two boxes, and one stripe of two.
        assert_eq!(svg.matches("<rect").count(), 4, "{svg}");
        let stripe = at(names + 6.0 * quarter);
        assert!(svg.contains(&format!("<rect {stripe} y=\"22.0\"")), "{svg}");
        assert!(
            svg.contains("height=\"40.0\" fill=\"#123456\""),
            "a band behind both rows: {svg}"
        );
    }
}
