//! The same pictures for pages: SVG that stands inline in the book and in notebooks.
//!
//! Lines and letters have the page's own colour (`currentColor`) and its own font, fills a middle tone: both can be read on
//! light and on dark pages, and nothing is fetched. A picture is as wide as its place, so it needs no scroll bar.

use super::axis::{Axis, Tick};
use super::plot::{Plot, Series, Style, labelled};
use super::screen::Screen;
use std::fmt::Write;

/// The ranks' colours, in the order of the terminal's: cyan, yellow, magenta, green, blue, red.
const PALETTE: [&str; 6] = ["#1b98a8", "#c98a00", "#b0509f", "#3c9a4c", "#4577d0", "#d0503f"];

/// How lines differ without colour.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "8 3 2 3"];

/// Units of a picture's width; a letter is about 7 wide and 13 high.
pub(super) const WIDTH: f64 = 480.0;

/// An SVG that a notebook shows: as the last value of a cell, the kernel (evcxr) calls [`Picture::evcxr_display`].
pub struct Picture(pub String);

impl Picture {
    /// Hands the picture to the notebook, as HTML: its lines and letters then have the page's colour.
    pub fn evcxr_display(&self) {
        println!("EVCXR_BEGIN_CONTENT text/html\n{}\nEVCXR_END_CONTENT", self.0);
    }
}

/// The colour of rank `rank`.
pub(super) fn rank_colour(rank: usize) -> &'static str {
    PALETTE[rank % PALETTE.len()]
}

/// `text` as SVG may hold it.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A picture of the given height around `body`, with `title` for those who do not see it.
pub(super) fn picture(title: &str, height: f64, body: &str) -> String {
    format!(
        "<svg class=\"figure\" role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" \
         style=\"max-width:44rem\" font-size=\"13\" fill=\"currentColor\" xmlns=\"http://www.w3.org/2000/svg\">\n{body}</svg>",
        escape(title)
    )
}

/// A line of text; `anchor` is start, middle or end.
pub(super) fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", escape(words))
}

impl Plot<'_> {
    /// The plot as an inline SVG.
    pub fn svg(&self) -> String {
        const KEY: f64 = 20.0;
        const LEFT: f64 = 52.0;
        const RIGHT: f64 = 18.0;
        const FOOT: f64 = 40.0;
        const LETTER: f64 = 7.2;
        let limits = self.limits();
        let screen = Screen::plain();
        let caption = self.caption(&screen, limits);
        let (lowest, highest) = limits;
        let is_shown = |x: f64, y: f64| self.is_drawable(x, y) && (lowest..=highest).contains(&y);
        let shown = || self.points().filter(|&(x, y)| is_shown(x, y));
        let axes = (
            Axis::covering(shown().map(|point| point.0), self.log_x),
            Axis::covering(shown().map(|point| point.1), self.log_y),
        );
        let (Some(x_axis), Some(y_axis)) = axes else {
            return picture(&caption, 30.0, &text(0.0, 20.0, "start", &format!("{caption}: nothing to plot")));
        };
        let (key, rows) = self.key(36.0, KEY);
        let head = 24.0 + KEY * rows as f64;
        let room = (WIDTH - LEFT - RIGHT, 18.0 * self.height.clamp(4, 50) as f64);
        let (x_of, y_of) = (|place: f64| LEFT + place * room.0, |place: f64| head + (1.0 - place) * room.1);

        let mut body = text(0.0, 16.0, "start", &caption);
        body += &key;
        for Tick { place, label, .. } in labelled(&screen, y_axis.round_ticks(), self.labels.y) {
            let y = y_of(place);
            let _ = writeln!(
                body,
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.15\"/>",
                LEFT + room.0
            );
            body += &text(LEFT - 6.0, y + 4.5, "end", &label);
        }
        for Tick { place, label, .. } in labelled(&screen, x_axis.end_ticks(), self.labels.x) {
            let half = LETTER / 2.0 * label.chars().count() as f64;
            body += &text(x_of(place).min(WIDTH - half), head + room.1 + 17.0, "middle", &label);
        }
        body += &text(WIDTH - RIGHT, head + room.1 + 34.0, "end", self.x_label);
        let place = |&(x, y): &(f64, f64)| is_shown(x, y).then(|| (x_of(x_axis.place(x)), y_of(y_axis.place(y))));
        for (i, series) in self.series.iter().enumerate() {
            body += &draw(i, series, place);
        }
        picture(&caption, head + room.1 + FOOT, &body)
    }

    /// The names of the series, each after its mark, in as many rows as they need; and how many these are.
    fn key(&self, first: f64, row: f64) -> (String, usize) {
        let mut body = String::new();
        let (mut x, mut rows) = (0.0, 1);
        for (i, series) in self.series.iter().enumerate() {
            let width = 48.0 + 7.0 * series.name.chars().count() as f64;
            if x > 0.0 && x + width > WIDTH {
                (x, rows) = (0.0, rows + 1);
            }
            let y = first + row * (rows - 1) as f64;
            body += &match series.style {
                Style::Line => stroke(i, &format!("M{x:.1} {:.1}h24", y - 4.5)),
                Style::Dots => dot(i, x + 12.0, y - 4.5),
            };
            body += &text(x + 30.0, y, "start", series.name);
            x += width;
        }
        (body, rows)
    }
}

fn draw(i: usize, series: &Series, place: impl Fn(&(f64, f64)) -> Option<(f64, f64)>) -> String {
    let places: Vec<Option<(f64, f64)>> = series.points.iter().map(place).collect();
    if series.style == Style::Dots {
        return places.into_iter().flatten().map(|(x, y)| dot(i, x, y)).collect();
    }
    let mut path = String::new();
    for run in places.split(Option::is_none) {
        for (n, (x, y)) in run.iter().flatten().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' });
        }
    }
    stroke(i, &path)
}

fn stroke(i: usize, path: &str) -> String {
    let (colour, dash) = (rank_colour(i), DASHES[i % DASHES.len()]);
    format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\n")
}

fn dot(i: usize, x: f64, y: f64) -> String {
    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{}\"/>\n", rank_colour(i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_names_and_stays_within_its_frame() {
        let plot = Plot::new("loss <nats>", "step")
            .series(Series::line("train", (0..50).map(|x| (f64::from(x), 4.0 - 0.04 * f64::from(x)))))
            .series(Series::dots("val", [(0.0, 4.1), (49.0, f64::NAN), (30.0, 3.0)]));
        let svg = plot.svg();
        for part in ["loss &lt;nats&gt;", ">train<", ">val<", ">step<", "currentColor"] {
            assert!(svg.contains(part), "{part} is missing in\n{svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 3, "two dots and the key's");
        assert!(!svg.contains("NaN") && !svg.contains("http://fonts") && !svg.contains("\n\n"));
        let line =
            svg.lines().filter(|line| line.starts_with("<path") && line.contains("stroke-width")).nth(1).unwrap();
        let numbers: Vec<f64> = line.split(['"', 'M', 'L', ' ']).filter_map(|word| word.parse().ok()).collect();
        assert!(numbers.len() >= 100 && numbers.iter().all(|n| (0.0..=WIDTH).contains(n)), "{line}");
    }

    #[test]
    fn axes_have_the_units_that_were_asked_for() {
        let plot = Plot::new("time", "bytes").log_x().log_y().labels(|x| format!("{x} B"), |y| format!("{y} s"));
        let svg = plot.series(Series::line("ring", [(1.0, 1.0), (4096.0, 100.0)])).svg();
        for label in [">1 B<", ">64 B<", ">4096 B<", ">10 s<", ">100 s<"] {
            assert!(svg.contains(label), "{label} is missing in\n{svg}");
        }
        // Also a long one at the right end stays within the picture.
        let last = svg.lines().find(|line| line.contains(">4096 B<")).unwrap();
        let x: f64 = last.split('"').nth(1).unwrap().parse().unwrap();
        assert!(x + 3.5 * "4096 B".len() as f64 <= WIDTH, "{last}");
    }

    #[test]
    fn many_names_take_several_rows() {
        let names: Vec<String> = (0..6).map(|i| format!("a name of some length {i}")).collect();
        let line = |name| Series::line(name, [(0.0, 0.0), (1.0, 1.0)]);
        let svg = names.iter().fold(Plot::new("t", "x"), |plot, name| plot.series(line(name))).svg();
        let at = |name: &String| {
            let line = svg.lines().find(|line| line.contains(&format!(">{name}<"))).unwrap();
            let numbers: Vec<f64> = line.split('"').filter_map(|word| word.parse().ok()).collect();
            (numbers[0] + 7.0 * name.len() as f64, numbers[1])
        };
        assert!(names.iter().all(|name| at(name).0 <= WIDTH), "{svg}");
        assert!(at(&names[5]).1 > at(&names[0]).1, "{svg}");
    }

    #[test]
    fn nothing_to_plot_is_said() {
        assert!(Plot::new("loss", "step").svg().contains("loss: nothing to plot"));
    }
}
