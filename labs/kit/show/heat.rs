//! Amounts over time as a heat map: one row for each amount, a cell for each moment.

use super::colour::of_rank;
use super::screen::Screen;
use super::svg::{Anchor, Page, WIDTH};
use super::text::{INDENT, LongWords, columns, fold, pad_left, widest};

const GAP: usize = 3;

/// From nothing to `MOST` of what is even, which is a level of its own.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_LEVELS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// What the highest level stands for, and more.
const MOST: f64 = 1.75;

/// A heat map before it is drawn. Amounts are multiples of an even one, which is 1.
#[derive(Clone, Debug)]
pub struct Heat<'a> {
    /// Printed above the legend.
    pub title: String,
    /// Each row's name, and the rank whose hue it has.
    pub rows: Vec<(String, usize)>,
    /// Drawn side by side, with the same rows.
    pub panels: Vec<Panel>,
    /// What runs from left to right, such as `step`.
    pub axis: &'a str,
}

/// One of a heat map's pictures.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    /// For each row its amounts, from the first moment to the last.
    pub cells: Vec<Vec<f64>>,
}

impl Heat<'_> {
    /// The heat map as text, several lines without a line end at the last one.
    pub fn render(&self, screen: &Screen) -> String {
        let gutter = widest(self.rows.iter().map(|row| &row.0)).min(screen.width / 3);
        let margin = INDENT.len() + gutter + 1;
        let panels = self.panels.len().max(1);
        let room = screen.width.saturating_sub(margin + (GAP + 1) * (panels - 1) + 2) / panels;
        let legend = legend(screen);
        let title = fold(&self.title, screen.width - INDENT.len(), LongWords::Cut);
        let mut lines: Vec<String> =
            title.iter().map(|line| format!("{INDENT}{}", screen.bold(line))).collect();
        match &mut lines[..] {
            // Both have room in one line.
            [line] if columns(&self.title) + columns(&legend) + GAP + 2 <= screen.width => {
                *line += &format!("{}{legend}", " ".repeat(GAP));
            }
            _ => lines.push(format!("{INDENT}{legend}")),
        }
        let bar = screen.dim(screen.either("│", "|"));
        for (i, (name, rank)) in self.rows.iter().enumerate() {
            let name: String = name.chars().take(gutter).collect();
            let mut line = format!("{INDENT}{}", pad_left(&name, gutter));
            for (p, panel) in self.panels.iter().enumerate() {
                let gap = if p == 0 { 1 } else { GAP };
                let cells = binned(&panel.cells[i], room);
                let drawn: String = cells.iter().map(|&x| sign(screen, x)).collect();
                let space = " ".repeat(self.width(panel, room).saturating_sub(cells.len()));
                line += &format!("{}{bar}{}{space}", " ".repeat(gap), screen.rank(*rank, drawn));
            }
            lines.push(line.trim_end().to_string());
        }
        lines.push(self.foot(screen, margin, room));
        lines.join("\n")
    }

    /// Below each panel its title, and its first and last moment.
    fn foot(&self, screen: &Screen, margin: usize, room: usize) -> String {
        let mut line = " ".repeat(margin - 1);
        for (p, panel) in self.panels.iter().enumerate() {
            let [first, last] = self.ends(panel);
            let space = self.width(panel, room).saturating_sub(columns(&first) + columns(&last));
            let gap = if p == 0 { 2 } else { GAP + 1 };
            line += &format!("{}{first}{}{last}", " ".repeat(gap), " ".repeat(space.max(1)));
        }
        let cut: String = line.chars().take(screen.width).collect();
        cut.trim_end().to_string()
    }

    /// What is written at a panel's first moment and at its last.
    fn ends(&self, panel: &Panel) -> [String; 2] {
        let moments = panel.cells.first().map_or(0, Vec::len);
        [format!("{}, {} 1", panel.title, self.axis), moments.to_string()]
    }

    /// Columns of a panel: those of its cells, or of what is written below.
    fn width(&self, panel: &Panel, room: usize) -> usize {
        let [first, last] = self.ends(panel);
        let moments = panel.cells.first().map_or(0, Vec::len);
        moments.min(room).max(columns(&first) + 1 + columns(&last)).min(room)
    }

    /// The heat map as an inline SVG: a cell's opacity is its amount.
    pub fn svg(&self) -> String {
        const GUTTER: f64 = 104.0;
        const ROW: f64 = 20.0;
        const SPACE: f64 = 12.0;
        let panels = self.panels.len().max(1) as f64;
        let width = (WIDTH - GUTTER - 2.0 - SPACE * (panels - 1.0)) / panels;
        let mut page = Page::default();
        for (i, (name, _)) in self.rows.iter().enumerate() {
            page.text((GUTTER - 8.0, 15.0 + ROW * i as f64), Anchor::End, name);
        }
        let foot = ROW * self.rows.len() as f64 + 18.0;
        for (p, panel) in self.panels.iter().enumerate() {
            let left = GUTTER + (width + SPACE) * p as f64;
            for (i, (cells, (_, rank))) in panel.cells.iter().zip(&self.rows).enumerate() {
                let cells = binned(cells, 60);
                let each = width / cells.len().max(1) as f64;
                for (c, amount) in cells.iter().enumerate() {
                    let at = (left + each * c as f64, 2.0 + ROW * i as f64);
                    let opacity = (amount / MOST).clamp(0.0, 1.0);
                    let style =
                        format!("fill=\"{}\" fill-opacity=\"{opacity:.2}\"", of_rank(*rank).page);
                    page.rect(at, (each, ROW - 2.0), style);
                }
            }
            let [first, last] = self.ends(panel);
            page.text((left, foot), Anchor::Start, first);
            page.text((left + width, foot), Anchor::End, last);
        }
        page.finish(&self.title, foot + 8.0)
    }
}

fn legend(screen: &Screen) -> String {
    let sign = |x| sign(screen, x);
    format!(
        "{} none  {} half  {} even  {} {MOST} of an even load",
        sign(0.0),
        sign(0.5),
        sign(1.0),
        sign(MOST)
    )
}

/// At most `room` means of amounts that follow each other.
fn binned(amounts: &[f64], room: usize) -> Vec<f64> {
    let bins = amounts.len().min(room.max(1));
    let bin = |b: usize| {
        let of = &amounts[b * amounts.len() / bins..(b + 1) * amounts.len() / bins];
        of.iter().sum::<f64>() / of.len() as f64
    };
    (0..bins).map(bin).collect()
}

fn sign(screen: &Screen, amount: f64) -> char {
    let levels = screen.either(LEVELS, ASCII_LEVELS);
    let most = levels.len() - 1;
    // Not a number is drawn as nothing.
    let level = (amount.max(0.0) / MOST * most as f64).round() as usize;
    levels[level.min(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat() -> Heat<'static> {
        let panel = |title: &str, cells: [&[f64]; 2]| Panel {
            title: title.to_string(),
            cells: cells.map(<[f64]>::to_vec).into(),
        };
        Heat {
            title: "Copies".to_string(),
            rows: vec![("expert 0".to_string(), 0), ("expert 1".to_string(), 1)],
            panels: vec![
                panel("layer 0", [&[0.0, 0.5, 1.0, 2.0], &[9.0, f64::NAN, 1.0, -1.0]]),
                panel("layer 1", [&[1.0; 40], &[1.0; 40]]),
            ],
            axis: "step",
        }
    }

    #[test]
    fn a_cell_is_as_high_as_its_amount() {
        let text = heat().render(&Screen { width: 60, ..Screen::plain_ascii() });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("  expert 0 |_:=#"), "{text}");
        assert!(lines[2].starts_with("  expert 1 |#_=_"), "{text}");
        assert!(lines[1].ends_with(&format!("|{}", "=".repeat(21))), "{text}");
        assert!(lines[3].contains("  layer 0, step 1 4 ") && lines[3].ends_with("40"), "{text}");
        assert_eq!(lines[3].find("layer 1"), lines[1].rfind('|').map(|bar| bar + 1), "{text}");
        assert!(lines.iter().all(|line| columns(line) <= 60), "{text}");
    }

    #[test]
    fn many_moments_are_drawn_as_means() {
        assert_eq!(binned(&[1.0, 3.0, 2.0, 4.0, 9.0], 2), [2.0, 5.0]);
        assert_eq!(binned(&[1.0, 3.0], 9), [1.0, 3.0]);
        assert!(binned(&[], 9).is_empty());
    }

    #[test]
    fn a_page_has_a_box_for_each_cell() {
        let svg = heat().svg();
        assert_eq!(svg.matches("<rect").count(), 2 * 4 + 2 * 40);
        assert!(svg.contains("fill-opacity=\"1.00\"") && svg.contains("fill-opacity=\"0.00\""));
    }
}
