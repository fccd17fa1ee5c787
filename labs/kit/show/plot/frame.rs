//! The frame around a plot: title and legend above, values at the sides.

use super::super::screen::Screen;
use super::super::text::{INDENT, LongWords, columns, fold, pad_left, place_labels};
use super::axis::Tick;
use super::canvas::Canvas;

const LEGEND_GAP: &str = "   ";

/// The frame of one plot. From the left: the indent, the values of the y axis set to the right, a
/// space, the axis, and then the room for the picture.
pub(super) struct Frame<'a> {
    screen: &'a Screen,
    y_ticks: Vec<Tick>,
    /// Columns for the values of the y axis.
    gutter: usize,
}

impl<'a> Frame<'a> {
    pub(super) fn new(screen: &'a Screen, y_ticks: Vec<Tick>) -> Frame<'a> {
        let gutter = y_ticks.iter().map(|tick| columns(&tick.label)).max().unwrap_or(0);
        Frame { screen, y_ticks, gutter }
    }

    /// Columns left for the picture.
    pub(super) fn room(&self) -> usize {
        self.screen.width.saturating_sub(INDENT.len() + self.gutter + 2)
    }

    /// Title on the left, legend at the right end of the line; below each other if too long.
    pub(super) fn head(&self, title: &str, items: &[String]) -> Vec<String> {
        let legend = items.join(LEGEND_GAP);
        let room = self.screen.width - INDENT.len();
        if columns(title) + LEGEND_GAP.len() + columns(&legend) <= room {
            let legend = pad_left(&legend, room - columns(title));
            let line = format!("{INDENT}{}{legend}", self.screen.bold(title));
            return vec![line.trim_end().to_owned()];
        }
        // Lines may end between series, not between a sample and its name.
        let unbroken = items.iter().map(|item| item.replace(' ', "\u{a0}")).collect::<Vec<_>>();
        let legend = fold(&unbroken.join(LEGEND_GAP), room, LongWords::Cut);
        let legend = legend.iter().map(|line| line.replace('\u{a0}', " "));
        let title = fold(title, room, LongWords::Cut);
        let title = title.iter().map(|line| self.screen.bold(line));
        title.chain(legend).map(|line| format!("{INDENT}{line}")).collect()
    }

    /// The rows of the picture, right of the y axis.
    pub(super) fn picture(&self, canvas: &Canvas) -> Vec<String> {
        let (with_tick, without) = if self.screen.ascii { ("+", "|") } else { ("┤", "│") };
        let line = |row: usize| {
            let is_here = |tick: &&Tick| canvas.cell_of((0.0, tick.place)).1 == row;
            let tick = self.y_ticks.iter().find(is_here);
            let label = pad_left(tick.map_or("", |tick| &tick.label), self.gutter);
            let axis = self.screen.dim(if tick.is_some() { with_tick } else { without });
            format!("{INDENT}{label} {axis}{}", canvas.row(row, self.screen))
        };
        (0..canvas.rows()).map(line).collect()
    }

    /// The x axis with its name at its end, and its values below.
    pub(super) fn foot(&self, canvas: &Canvas, name: &str, ticks: &[Tick]) -> [String; 2] {
        let (corner, rule) = if self.screen.ascii { ("+", "-") } else { ("└", "─") };
        let name = fold(name, self.room() / 2, LongWords::Cut).into_iter().next();
        let name = name
            .filter(|name| !name.is_empty())
            .map_or(String::new(), |name| format!(" {name}"));
        let rule = rule.repeat(self.room() - columns(&name));
        let margin = INDENT.len() + self.gutter + 1;
        let axis = self.screen.dim(format!("{corner}{rule}"));

        let values = ticks
            .iter()
            .map(|t| (margin + 1 + canvas.cell_of((t.place, 0.0)).0, t.label.as_str()));
        [
            format!("{}{axis}{name}", " ".repeat(margin)),
            place_labels(values, self.screen.width),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_legend_breaks_between_its_items() {
        let screen = Screen { width: 40, ascii: true, ..Screen::plain() };
        let frame = Frame::new(&screen, Vec::new());
        let names = ["* one rank", "o two ranks", "+ four ranks"].map(String::from);
        assert_eq!(
            frame.head("loss of all runs", &names),
            ["  loss of all runs", "  * one rank   o two ranks", "  + four ranks"]
        );
        assert_eq!(frame.head("loss", &[]), ["  loss"]);
    }

    #[test]
    fn values_that_would_touch_are_left_out() {
        let screen = Screen { width: 40, ascii: true, ..Screen::plain() };
        let frame = Frame::new(&screen, Vec::new());
        let canvas = Canvas::new(frame.room(), 4, true);
        let tick = |place, label: &str| Tick { place, value: place, label: label.to_owned() };
        let ticks = [tick(0.0, "1.000"), tick(0.1, "1.100"), tick(1.0, "2.000")];
        assert_eq!(
            frame.foot(&canvas, "step", &ticks),
            [
                "   +------------------------------- step",
                "  1.000                            2.000"
            ]
        );
    }
}
