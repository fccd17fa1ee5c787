//! The cells of a plot: Braille through textplots (2 × 4 dots per cell), or plain ASCII characters.
//!
//! Points are fractions: (0, 0) is the lower left corner and (1, 1) the upper right one.
//! textplots draws each series on its own sheet, and this file lays the sheets over each other.
//! So it chooses colours itself (textplots' depend on global state) and ranges, too (the automatic
//! ones of textplots break on a single NaN, and lose `y = 0` in some shapes).

use super::super::screen::Screen;
use textplots::{Chart, Plot as _, Shape};

/// Dots in a Braille cell.
const DOTS: (usize, usize) = (2, 4);

/// textplots panics below this width in dots.
const NARROWEST_CHART: usize = 32;

/// The first Braille character; the low eight bits of the others say which dots they have.
const BRAILLE: u32 = 0x2800;

const MARKS: [char; 6] = ['●', '○', '◆', '△', '■', '▽'];
const ASCII_MARKS: [char; 6] = ['*', 'o', '+', 'x', '#', '@'];

/// A point as two fractions of the canvas.
pub(super) type Place = (f64, f64);

pub(super) struct Canvas {
    columns: usize,
    rows: usize,
    ascii: bool,
    /// Row by row from the top: the character and the look of the series it belongs to.
    cells: Vec<Option<(char, usize)>>,
}

/// The character for a point of series number `series`.
pub(super) fn mark(series: usize, ascii: bool) -> char {
    let marks = if ascii { ASCII_MARKS } else { MARKS };
    marks[series % marks.len()]
}

impl Canvas {
    pub(super) fn new(columns: usize, rows: usize, ascii: bool) -> Canvas {
        Canvas { columns, rows, ascii, cells: vec![None; columns * rows] }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Draws the points of a series connected in the order given.
    pub(super) fn line(&mut self, series: usize, places: &[Place]) {
        match places {
            // A line from one point to nowhere has no length, but the point is there.
            [_] => self.marks(series, places),
            _ if self.ascii => self.ascii_line(series, places),
            _ => self.braille_line(series, places),
        }
    }

    /// Draws the mark of a series at every point.
    pub(super) fn marks(&mut self, series: usize, places: &[Place]) {
        for &place in places {
            let (column, row) = self.cell_of(place);
            self.put(column, row, mark(series, self.ascii), series);
        }
    }

    /// The column and the row in which `place` is drawn.
    pub(super) fn cell_of(&self, place: Place) -> (usize, usize) {
        if self.ascii {
            grid_of(place, self.columns, self.rows)
        } else {
            let (x, y) = grid_of(place, DOTS.0 * self.columns, DOTS.1 * self.rows);
            (x / DOTS.0, y / DOTS.1)
        }
    }

    /// One row as text, without the empty cells at its end.
    pub(super) fn row(&self, row: usize, screen: &Screen) -> String {
        let cells = &self.cells[row * self.columns..(row + 1) * self.columns];
        let end = cells.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let runs = cells[..end].chunk_by(|a, b| a.map(|cell| cell.1) == b.map(|cell| cell.1));
        let paint = |run: &[Option<(char, usize)>]| {
            let text: String = run.iter().map(|cell| cell.map_or(' ', |(c, _)| c)).collect();
            run.first()
                .copied()
                .flatten()
                .map_or(text.clone(), |(_, series)| screen.curve(series, &text))
        };
        runs.map(paint).collect()
    }

    fn braille_line(&mut self, series: usize, places: &[Place]) {
        let width = DOTS.0 * self.columns;
        let height = DOTS.1 * self.rows;
        let wide = width.max(NARROWEST_CHART) as u32;
        let high = height as u32;
        let mut chart = Chart::new_with_y_range(wide, high, 0.0, wide as f32, 0.0, high as f32);
        let dot = |&place: &Place| {
            let (x, y) = grid_of(place, width, height);
            (x as f32, (height - y) as f32) // its rows count upwards from 1
        };
        let dots: Vec<(f32, f32)> = places.iter().map(dot).collect();
        let shape = Shape::Lines(&dots);
        let drawn = chart.lineplot(&shape); // keeps `chart` borrowed: go on with what it returns
        drawn.figures();
        for (row, line) in drawn.frame().lines().take(self.rows).enumerate() {
            for (column, c) in line.chars().take(self.columns).enumerate() {
                if c != ' ' {
                    self.put(column, row, c, series);
                }
            }
        }
    }

    /// Marks at the points, and dots in the columns in between.
    fn ascii_line(&mut self, series: usize, places: &[Place]) {
        for pair in places.windows(2) {
            let from = pair[0];
            let to = pair[1];
            let first = self.cell_of(from).0;
            let last = self.cell_of(to).0;
            for column in first.min(last) + 1..first.max(last) {
                let part = (column as f64 - first as f64) / (last as f64 - first as f64);
                let (_, row) = self.cell_of((from.0, from.1 + part * (to.1 - from.1)));
                self.put(column, row, '.', series);
            }
        }
        self.marks(series, places);
    }

    /// Writes one cell. Braille on Braille adds the dots, anything else replaces what was there.
    fn put(&mut self, column: usize, row: usize, c: char, series: usize) {
        let Some(cell) = self.cells.get_mut(row * self.columns + column) else {
            return;
        };
        let both = cell.and_then(|(old, _)| Some(braille_dots(old)? | braille_dots(c)?));
        let c = both.and_then(|dots| char::from_u32(BRAILLE + dots)).unwrap_or(c);
        *cell = Some((c, series));
    }
}

fn braille_dots(c: char) -> Option<u32> {
    (c as u32).checked_sub(BRAILLE).filter(|&dots| dots < 256)
}

/// The square of `place` on a grid of that many columns and rows, counted from the top left.
fn grid_of(place: Place, columns: usize, rows: usize) -> (usize, usize) {
    let x = place.0.clamp(0.0, 1.0) * (columns as f64 - 1.0);
    let y = (1.0 - place.1.clamp(0.0, 1.0)) * (rows as f64 - 1.0);
    (x.round() as usize, y.round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(canvas: &Canvas) -> String {
        let rows: Vec<String> =
            (0..canvas.rows).map(|row| canvas.row(row, &Screen::plain())).collect();
        rows.join("\n")
    }

    #[test]
    fn a_braille_line_reaches_both_corners() {
        let mut canvas = Canvas::new(4, 2, false);
        canvas.line(0, &[(0.0, 0.0), (1.0, 1.0)]);
        assert_eq!(picture(&canvas), "  ⡠⠊\n⡠⠊");
    }

    #[test]
    fn lines_over_lines_add_dots_and_marks_replace() {
        let mut canvas = Canvas::new(4, 1, false);
        canvas.line(0, &[(0.0, 1.0), (1.0, 1.0)]);
        assert_eq!(picture(&canvas), "⠉⠉⠉⠉");
        canvas.line(1, &[(0.0, 0.0), (1.0, 0.0)]);
        assert_eq!(picture(&canvas), "⣉⣉⣉⣉");
        canvas.marks(1, &[(1.0, 0.0)]);
        assert_eq!(picture(&canvas), "⣉⣉⣉○");
    }

    #[test]
    fn an_ascii_line_is_dotted_between_marks() {
        let mut canvas = Canvas::new(9, 3, true);
        canvas.line(0, &[(0.0, 0.0), (0.5, 1.0), (1.0, 0.0)]);
        assert_eq!(picture(&canvas), "    *\n  .. ..\n*.     .*");
    }

    #[test]
    fn a_single_point_is_drawn() {
        let mut canvas = Canvas::new(3, 1, false);
        canvas.line(0, &[(0.5, 0.0)]);
        assert_eq!(picture(&canvas), " ●");
    }

    #[test]
    fn colours_go_by_runs() {
        let mut canvas = Canvas::new(3, 1, true);
        canvas.marks(0, &[(0.0, 0.0), (0.5, 0.0)]);
        canvas.marks(1, &[(1.0, 0.0)]);
        let screen = Screen { colour: true, ..Screen::plain() };
        assert_eq!(
            canvas.row(0, &screen),
            format!("{}{}", screen.curve(0, "**"), screen.curve(1, "o"))
        );
    }
}
