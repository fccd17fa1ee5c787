//! The micro-batches that a training draws: which step learns from each, and which are discarded.

use super::screen::Screen;
use super::svg::{WIDTH, area, picture, rank_colour, text};
use super::text::{columns, pad_left, pad_right};
use std::ops::RangeInclusive;

/// Ways to draw, one per row. Micro-batch n, counted from 1, is in column n.
#[derive(Clone, Debug)]
pub struct Draws {
    /// Each way's name, and for each micro-batch the step that learned from it; `None` if it was discarded.
    pub rows: Vec<(String, Vec<Option<usize>>)>,
    /// The bad micro-batches.
    pub bad: RangeInclusive<usize>,
}

impl Draws {
    const HEAD: &'static str = "micro-batch";

    fn count(&self) -> usize {
        self.rows.iter().map(|row| row.1.len()).max().unwrap_or(0)
    }

    /// The rows as text. A step's number is below each micro-batch that it learned from, a dash below a discarded one.
    pub fn render(&self, screen: &Screen) -> String {
        let names = self.rows.iter().map(|row| columns(&row.0));
        let gutter = names.chain([columns(Self::HEAD)]).max().unwrap_or(0);
        let line = |name: &str, cells: &mut dyn Iterator<Item = String>| {
            let cells: String = cells
                .map(|cell| format!(" {}", pad_left(&cell, 2)))
                .collect();
            format!("  {} {cells}", pad_right(name, gutter))
                .trim_end()
                .to_string()
        };
        let numbers = || 1..=self.count();
        let mut lines = vec![
            line(Self::HEAD, &mut numbers().map(|n| n.to_string())),
            line(
                "bad",
                &mut numbers().map(|n| {
                    if self.bad.contains(&n) {
                        "!".into()
                    } else {
                        String::new()
                    }
                }),
            ),
        ];
        let dash = if screen.ascii { "-" } else { "–" };
        let cell = |step: &Option<usize>| step.map_or(dash.to_string(), |step| step.to_string());
        lines.extend(
            self.rows
                .iter()
                .map(|(name, steps)| line(name, &mut steps.iter().map(cell))),
        );
        lines.join("\n")
    }

    /// The rows as an inline SVG: a box for each micro-batch with the number of its step, an outline for a discarded one.
    pub fn svg(&self, title: &str) -> String {
        const GUTTER: f64 = 84.0;
        const ROW: f64 = 28.0;
        let wide = (WIDTH - GUTTER) / self.count().max(1) as f64;
        let x = |n: usize| GUTTER + wide * (n - 1) as f64;
        let height = 24.0 + ROW * self.rows.len() as f64;
        let bad = (*self.bad.end() + 1).saturating_sub(*self.bad.start()) as f64;
        // The bad micro-batches are a band behind all rows.
        let band = area((x(*self.bad.start()), 0.0), (wide * bad, height), "#d0503f");
        let mut body = band.replace("/>", " fill-opacity=\"0.18\"/>");
        body += &text(0.0, 15.0, "start", Self::HEAD);
        body += &(1..=self.count())
            .map(|n| text(x(n) + wide / 2.0, 15.0, "middle", &n.to_string()))
            .collect::<String>();
        for (row, (name, steps)) in self.rows.iter().enumerate() {
            let y = 24.0 + ROW * row as f64;
            body += &text(0.0, y + 16.0, "start", name);
            for (n, step) in (1..).zip(steps) {
                let style = match step {
                    Some(step) => format!(
                        "fill=\"{0}\" fill-opacity=\"0.35\" stroke=\"{0}\"",
                        rank_colour(*step)
                    ),
                    None => {
                        "fill=\"none\" stroke=\"currentColor\" stroke-dasharray=\"2 2\"".to_string()
                    }
                };
                body += &format!(
                    "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"22\" {style}/>\n",
                    x(n) + 1.0,
                    wide - 2.0
                );
                body += &step.map_or(String::new(), |step| {
                    text(x(n) + wide / 2.0, y + 16.0, "middle", &step.to_string())
                });
            }
        }
        picture(title, height + 4.0, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws() -> Draws {
        let rows = vec![
            (
                "nothing".to_string(),
                vec![Some(1), Some(1), Some(2), Some(2)],
            ),
            (
                "one".to_string(),
                vec![Some(1), Some(1), None, Some(2), Some(2)],
            ),
        ];
        Draws { rows, bad: 3..=4 }
    }

    #[test]
    fn a_dash_is_below_what_is_discarded() {
        let expected = "
  micro-batch   1  2  3  4  5
  bad                 !  !
  nothing       1  1  2  2
  one           1  1  –  2  2
";
        assert_eq!(
            draws().render(&Screen::plain()),
            expected.trim_matches('\n')
        );
        assert!(
            draws()
                .render(&Screen {
                    ascii: true,
                    ..Screen::plain()
                })
                .is_ascii()
        );
    }

    #[test]
    fn a_page_has_a_box_for_each_draw_and_a_band_for_the_bad_ones() {
        let svg = draws().svg("two ways");
        assert_eq!(svg.matches("<rect").count(), 9 + 1, "{svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "{svg}");
        assert!(!svg.contains("\n\n"));
    }
}
