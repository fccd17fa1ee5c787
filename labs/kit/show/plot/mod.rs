//! Curves: title and legend, labelled axes, and the picture between them.
//!
//! In the terminal they are made of `axis.rs` (where a value belongs), `canvas.rs` (which cell that
//! is) and `frame.rs` (title, legend and the values at the sides), and on pages of `axis.rs` and
//! `page.rs`.
//!
//! Two series can always be distinguished without colour: the first line is plain, every other one
//! carries its own marks.

mod axis;
mod canvas;
mod frame;
mod page;

use super::numbers::counted;
use super::screen::Screen;
use axis::{Axis, Tick, is_drawable};
use canvas::{Canvas, Place, mark};
use frame::Frame;

/// Narrower screens are drawn for as if they had this width: there is no room for less.
const NARROWEST: usize = 40;

/// Columns between two marks on a line.
const MARK_DISTANCE: usize = 10;

/// How the points of a series are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Connected points, for values of every step.
    Line,
    /// One mark per point, for values of a few steps.
    Dots,
}

/// Points that belong together under one name.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// Its name in the legend.
    pub name: &'a str,
    /// Its points in drawing order. One that is not finite leaves a gap.
    pub points: Vec<(f64, f64)>,
    /// Line or dots.
    pub style: Style,
    /// Its colour, pattern and mark: the one at this place instead of its own place in the plot. A
    /// name that several plots have then looks the same in all of them.
    pub look: Option<usize>,
}

impl<'a> Series<'a> {
    /// A series drawn as a line.
    pub fn line(name: &'a str, points: impl IntoIterator<Item = (f64, f64)>) -> Series<'a> {
        Series {
            name,
            points: points.into_iter().collect(),
            style: Style::Line,
            look: None,
        }
    }

    /// A series drawn as separate marks.
    pub fn dots(name: &'a str, points: impl IntoIterator<Item = (f64, f64)>) -> Series<'a> {
        Series { style: Style::Dots, ..Series::line(name, points) }
    }

    /// Gives the series a look of its own (see [`Series::look`]).
    pub fn looking(mut self, look: usize) -> Series<'a> {
        self.look = Some(look);
        self
    }
}

/// How values at an axis are written.
type Label = fn(f64) -> String;

/// The data of a plot, and how to draw it. [`Plot::render`] turns it into text.
#[derive(Clone, Debug, Default)]
pub struct Plot<'a> {
    /// The y axis's name, above the picture.
    pub title: &'a str,
    /// The x axis's name.
    pub x_label: &'a str,
    /// The curves, drawn in this order.
    pub series: Vec<Series<'a>>,
    /// Rows of the picture, without title and axis.
    pub height: usize,
    /// Whether equal factors in x look equally wide.
    pub log_x: bool,
    /// Whether equal factors in y look equally high.
    pub log_y: bool,
    /// How values at the x and the y axis are written, if not as plain numbers.
    pub labels: [Option<Label>; 2],
    /// Whether a page writes round values at the x axis, and not the first, the last and one
    /// between them.
    pub round_x: bool,
}

impl<'a> Plot<'a> {
    /// An empty plot of ten rows with linear axes.
    pub fn new(title: &'a str, x_label: &'a str) -> Plot<'a> {
        Plot { title, x_label, height: 10, ..Plot::default() }
    }

    /// Adds a series.
    pub fn series(mut self, series: Series<'a>) -> Plot<'a> {
        self.series.push(series);
        self
    }

    /// Sets the rows of the picture (4 to 50).
    pub fn height(mut self, rows: usize) -> Plot<'a> {
        self.height = rows;
        self
    }

    /// Makes the x axis logarithmic. Points at or below 0 are left out, and the title says so.
    pub fn log_x(mut self) -> Plot<'a> {
        self.log_x = true;
        self
    }

    /// Makes the y axis logarithmic. Points at or below 0 are left out, and the title says so.
    pub fn log_y(mut self) -> Plot<'a> {
        self.log_y = true;
        self
    }

    /// Writes values at the axes with their units: `show::bytes_binary`, `show::seconds`.
    pub fn labels(mut self, x: Label, y: Label) -> Plot<'a> {
        self.labels = [Some(x), Some(y)];
        self
    }

    /// Writes round values at the x axis of a page.
    pub fn round_x(mut self) -> Plot<'a> {
        self.round_x = true;
        self
    }

    /// The plot as text, several lines without a line end at the last one, never wider than the
    /// screen (or 40 columns).
    pub fn render(&self, screen: &Screen) -> String {
        let width = screen.width.max(NARROWEST);
        let screen = &Screen { width, ..screen.clone() };
        let caption = self.caption(screen);
        let Some((x_axis, y_axis)) = self.axes() else {
            return screen.wrap(&format!("{caption}: nothing to plot, not a single point"), 2);
        };

        let frame = Frame::new(screen, labelled(screen, y_axis.round_ticks(), self.labels[1]));
        let mut canvas = Canvas::new(frame.room(), self.height.clamp(4, 50), screen.ascii);
        self.draw(&mut canvas, |x, y| {
            self.is_drawable(x, y).then(|| (x_axis.place(x), y_axis.place(y)))
        });

        let mut lines = frame.head(&caption, &self.legend(screen));
        lines.extend(frame.picture(&canvas));
        lines.extend(frame.foot(
            &canvas,
            self.x_label,
            &labelled(screen, x_axis.end_ticks(), self.labels[0]),
        ));
        lines.join("\n")
    }

    /// Lines first and dots over them, so that dots are never hidden.
    fn draw(&self, canvas: &mut Canvas, place: impl Fn(f64, f64) -> Option<Place>) {
        let places = |series: &Series| -> Vec<Option<Place>> {
            series.points.iter().map(|&(x, y)| place(x, y)).collect()
        };
        for (i, series) in self.in_style(Style::Line) {
            let places = places(series);
            for run in places.split(Option::is_none).filter(|run| !run.is_empty()) {
                canvas.line(self.look(i), &present(run));
            }
            if self.plain_line() != Some(i) {
                canvas.marks(self.look(i), &sparse(canvas, &present(&places)));
            }
        }
        for (i, series) in self.in_style(Style::Dots) {
            canvas.marks(self.look(i), &present(&places(series)));
        }
    }

    /// The title and what is not in the picture: `loss · 1 point not finite`.
    fn caption(&self, screen: &Screen) -> String {
        let is_finite = |&(x, y): &(f64, f64)| is_drawable(x, false) && is_drawable(y, false);
        let not_finite = self.points().filter(|point| !is_finite(point)).count();
        let not_drawn = self.points().filter(|&(x, y)| !self.is_drawable(x, y)).count();
        let mut caption = self.title.to_owned();
        for (count, what) in [(not_finite, "not finite"), (not_drawn - not_finite, "not above 0")] {
            if count > 0 {
                let points = counted(count, "point", "points");
                caption += &format!("{}{points} {what}", screen.separator());
            }
        }
        caption
    }

    /// Each series' sample in its colour, and its name.
    fn legend(&self, screen: &Screen) -> Vec<String> {
        let item = |(i, series): (usize, &Series)| {
            let mark = mark(self.look(i), screen.ascii);
            let sample = match series.style {
                Style::Line if !screen.ascii && self.plain_line() == Some(i) => "⠤⠤⠤".to_owned(),
                Style::Line if !screen.ascii => format!("⠤{mark}⠤"),
                Style::Line | Style::Dots => mark.to_string(),
            };
            format!("{} {}", screen.curve(self.look(i), sample), series.name)
        };
        self.series.iter().enumerate().map(item).collect()
    }

    /// The place of series `i` among colours, patterns and marks.
    fn look(&self, i: usize) -> usize {
        self.series[i].look.unwrap_or(i)
    }

    /// The axes that just hold all points that are drawn; none if there are no such points.
    fn axes(&self) -> Option<(Axis, Axis)> {
        let drawn = || self.points().filter(|&(x, y)| self.is_drawable(x, y));
        let x_axis = Axis::covering(drawn().map(|point| point.0), self.log_x);
        x_axis.zip(Axis::covering(drawn().map(|point| point.1), self.log_y))
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|series| series.points.iter().copied())
    }

    fn is_drawable(&self, x: f64, y: f64) -> bool {
        is_drawable(x, self.log_x) && is_drawable(y, self.log_y)
    }

    fn in_style(&self, style: Style) -> impl Iterator<Item = (usize, &Series<'a>)> {
        self.series.iter().enumerate().filter(move |(_, series)| series.style == style)
    }

    /// The one line that needs no marks: the first one. Of lines with a look of their own it is the
    /// one with the first look, so that it looks the same everywhere.
    fn plain_line(&self) -> Option<usize> {
        let plain = |series: &Series| series.look.is_none_or(|look| look == 0);
        self.in_style(Style::Line).find(|(_, series)| plain(series)).map(|(i, _)| i)
    }
}

/// Ticks with different labels.
fn labelled(screen: &Screen, ticks: Vec<Tick>, label: Option<Label>) -> Vec<Tick> {
    let Some(label) = label else { return ticks };
    let text = |tick: Tick| Tick { label: screen.micro(label(tick.value)), ..tick };
    ticks.into_iter().map(text).collect()
}

fn present(places: &[Option<Place>]) -> Vec<Place> {
    places.iter().copied().flatten().collect()
}

/// The first point and then one every few columns: enough to recognise a line by its marks.
fn sparse(canvas: &Canvas, places: &[Place]) -> Vec<Place> {
    let mut chosen: Vec<Place> = Vec::new();
    let mut last: Option<usize> = None;
    for &place in places {
        let column = canvas.cell_of(place).0;
        if last.is_none_or(|last| column.abs_diff(last) >= MARK_DISTANCE) {
            last = Some(column);
            chosen.push(place);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::text::columns;
    use super::canvas::mark;
    use super::*;

    fn ascii(width: usize) -> Screen {
        Screen { width, colour: false, ascii: true }
    }

    /// An endless, repeatable supply of numbers from 0 to 1.
    pub(super) struct Numbers(pub u64);

    impl Numbers {
        fn next(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as f64 / (1u64 << 31) as f64
        }

        fn up_to(&mut self, end: usize) -> usize {
            (self.next() * end as f64) as usize
        }

        fn pick<T: Copy>(&mut self, from: &[T]) -> T {
            from[self.up_to(from.len())]
        }

        fn value(&mut self) -> f64 {
            let odd = [
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::MAX,
                1e300,
                -1e300,
                5e-324,
                0.0,
                -0.0,
                1.0,
            ];
            match self.up_to(4) {
                0 => self.pick(&odd),
                1 => 10f64.powf(600.0 * self.next() - 300.0),
                _ => 10.0 * self.next() - 5.0,
            }
        }
    }

    /// A series looks the same at any place in any plot, on the screen and on a page.
    #[test]
    fn a_look_of_its_own_is_independent_of_the_place() {
        let screen = Screen { colour: true, ..ascii(60) };
        let line = |name, look, y| Series::line(name, [(0.0, y), (40.0, y)]).looking(look);
        let plot = |series: Vec<Series<'static>>| {
            series.into_iter().fold(Plot::new("t", "x"), Plot::series)
        };
        let naive = line("naive", 0, 1.0);
        let ring = line("ring", 1, 2.0);
        let first = plot(vec![naive.clone(), ring.clone()]);
        let last = plot(vec![line("own", 4, 3.0), ring, naive]);
        for plot in [first, last] {
            let text = plot.render(&screen);
            let sample = |look, mark: &str| screen.curve(look, mark);
            assert!(text.contains(&format!("{} naive", sample(0, "*"))), "{text}");
            assert!(text.contains(&format!("{} ring", sample(1, "o"))), "{text}");
            let svg = plot.svg();
            let naive = "stroke=\"#5aa9e6\" stroke-dasharray=\"none\"";
            assert_eq!(svg.matches(naive).count(), 2, "{svg}");
        }
    }

    #[test]
    fn five_points_in_ascii() {
        let plot = Plot::new("loss", "step")
            .height(5)
            .series(Series::line(
                "train",
                [(0.0, 4.0), (10.0, 3.0), (20.0, 2.5), (30.0, 2.1), (40.0, 2.0)],
            ))
            .series(Series::dots("val", [(0.0, 4.0), (40.0, 2.5)]));
        let expected = "
  loss                   * train   o val
  4 +o..
    |   ....
  3 +       ..*...
    |             ....*.....           o
  2 +                       ...*.......*
    +------------------------------ step
     0               20               40
";
        assert_eq!(plot.render(&ascii(40)), expected.trim_matches('\n'));
    }

    #[test]
    fn two_lines_in_braille() {
        let plot = Plot::new("loss", "step")
            .height(4)
            .series(Series::line("a", [(0.0, 0.0), (1.0, 1.0)]))
            .series(Series::line("b", [(0.0, 1.0), (0.5, 1.0), (1.0, 0.0)]));
        let expected = "
  loss                     ⠤⠤⠤ a   ⠤○⠤ b
  1.0 ┤○⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉○⠉⠒⠤⣀     ⣀⣀⡠⠤⠔⠒⠊
      │                 ⢀⣀⡠⠤⠭⠒⠶⣉⡉
  0.5 ┤         ⣀⣀⠤⠤⠒⠒⠊⠉⠁       ⠈⠑⠢⢄⡀
  0.0 ┤⣀⣀⡠⠤⠔⠒⠊⠉⠉                    ⠈⠑⠢○
      └──────────────────────────── step
       0                               1
";
        assert_eq!(
            plot.render(&Screen { width: 40, ..Screen::plain() }),
            expected.trim_matches('\n')
        );
    }

    #[test]
    fn nothing_to_plot_is_said() {
        let empty = Plot::new("loss", "step").series(Series::line("train", []));
        assert_eq!(empty.render(&Screen::plain()), "  loss: nothing to plot, not a single point");
        let plot = Plot::new("loss", "step").series(Series::line("train", [(1.0, f64::NAN)]));
        assert_eq!(
            plot.render(&Screen::plain()),
            "  loss · 1 point not finite: nothing to plot, not a single point"
        );
    }

    #[test]
    fn what_is_not_shown_is_said() {
        let points =
            (0..40).map(|i| (f64::from(i), if i == 7 { f64::NAN } else { f64::from(i % 4) }));
        let plot = Plot::new("loss", "step").series(Series::line("train", points));
        let text = plot.render(&Screen::plain());
        assert!(text.starts_with("  loss · 1 point not finite   "), "{text}");
        let text = plot.log_y().render(&ascii(80));
        let caption = "  loss | 1 point not finite | 10 points not above 0   ";
        assert!(text.starts_with(caption), "{text}");
    }

    #[test]
    fn on_two_logarithmic_axes_a_power_is_a_straight_line() {
        let points = (0..=6).map(|k| 10f64.powi(k)).map(|x| (x, 1e-6 * x));
        let plot = Plot::new("t", "bytes")
            .series(Series::dots("", points))
            .height(7)
            .log_x()
            .log_y();
        let text = plot.render(&ascii(40));
        let columns: Vec<usize> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.find('o').or(line.find('*')))
            .collect();
        assert_eq!(columns.len(), 7, "{text}");
        let gaps: Vec<usize> = columns.windows(2).map(|pair| pair[0] - pair[1]).collect();
        assert!(gaps.iter().all(|gap| gap.abs_diff(gaps[0]) <= 1), "{text}");
        assert!(text.ends_with("         1            1000    1,000,000"), "{text}");
        let units = plot.labels(crate::show::bytes_binary, crate::show::seconds).render(&ascii(60));
        for label in [" 1.00 us +", " 10.0 ms +", "  1 B  ", " 1,000 B ", " 977 KiB"] {
            assert!(units.contains(label), "{label} is missing in\n{units}");
        }
        let none = Plot::new("t", "").series(Series::dots("", [(0.0, 1.0), (1.0, 1.0)])).log_x();
        assert!(
            none.render(&ascii(40)).starts_with("  t | 1 point not above 0"),
            "{}",
            none.render(&ascii(40))
        );
    }

    #[test]
    fn a_gap_stays_a_gap() {
        let floor = |middle| {
            let points = [0.0, 0.0, middle, 0.0, 0.0, 1.0]
                .into_iter()
                .enumerate()
                .map(|(x, y)| (x as f64, y));
            let plot = Plot::new("", "").series(Series::line("", points));
            plot.render(&Screen::plain()).matches('⣀').count()
        };
        let whole = floor(0.0);
        let broken = floor(f64::NAN);
        assert!(whole > 50 && broken < 30, "{whole} {broken}");
    }

    #[test]
    fn a_point_between_gaps_is_drawn() {
        let points = [(0.0, 0.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, f64::NAN), (4.0, 0.0)];
        let plot = Plot::new("", "").series(Series::line("", points));
        assert_eq!(plot.render(&Screen::plain()).matches('●').count(), 3);
    }

    #[test]
    fn the_second_line_has_a_mark_now_and_then() {
        let points = |y: f64| (0..300).map(move |x| (f64::from(x), y));
        let plot = Plot::new("", "")
            .series(Series::line("", points(0.0)))
            .series(Series::line("", points(1.0)));
        let text = plot.render(&Screen::plain());
        // One of them in the legend.
        assert_eq!((text.matches('●').count(), text.matches('○').count()), (0, 9));
    }

    #[test]
    fn zero_one_and_equal_points_are_drawn() {
        for screen in [Screen::plain(), ascii(80)] {
            let dots = |points: &[f64]| {
                let points = points.iter().enumerate().map(|(i, &y)| (i as f64, y));
                let plot = Plot::new("", "").series(Series::dots("", points)).render(&screen);
                plot.lines().skip(1).collect::<String>().matches(mark(0, screen.ascii)).count()
            };
            assert_eq!(
                (dots(&[0.0]), dots(&[5.0]), dots(&[5.0, 5.0]), dots(&[0.0, 1.0, 0.0])),
                (1, 1, 2, 3)
            );
        }
    }

    /// Any plot: with few points and none, odd values, long words.
    pub(super) fn any_plot(random: &mut Numbers) -> Plot<'static> {
        let title = random.pick(&[
            "",
            "loss",
            "the loss of every rank, averaged over the last ten steps of the run",
        ]);
        let mut plot =
            Plot::new(title, random.pick(&["", "step", "tokens seen by all ranks together"]));
        plot.height = random.up_to(20);
        plot.log_x = random.next() < 0.3;
        plot.log_y = random.next() < 0.3;
        for _ in 0..random.up_to(9) {
            let count = random.pick(&[0, 1, 2, 5, 60]);
            let equal = (random.next() < 0.2).then(|| random.value());
            let mut point = |i| {
                let x = if random.next() < 0.8 {
                    f64::from(i)
                } else {
                    random.value()
                };
                (x, equal.unwrap_or_else(|| random.value()))
            };
            let points = (0..count).map(&mut point).collect();
            let name = random.pick(&["train", "", "a rather long name for a series"]);
            plot.series.push(Series {
                name,
                points,
                style: random.pick(&[Style::Line, Style::Dots]),
                look: None,
            });
        }
        plot
    }

    #[test]
    fn never_wider_than_the_screen_and_always_as_high_as_asked() {
        let mut random = Numbers(1);
        for round in 0..1000 {
            let plot = any_plot(&mut random);
            let screen = Screen {
                width: 40 + random.up_to(61),
                colour: random.next() < 0.5,
                ascii: random.next() < 0.5,
            };
            let text = plot.render(&screen);
            for line in text.lines() {
                assert!(columns(line) <= screen.width, "round {round}: {line}");
                assert!(!screen.ascii || line.is_ascii(), "round {round}: {line}");
            }
            let axis = if screen.ascii { ['|', '+'] } else { ['│', '┤'] };
            let is_row =
                |line: &&str| axis.iter().any(|&c| line.contains(c)) && !line.contains("---");
            let rows = text.lines().filter(is_row).count();
            assert!(
                text.contains("nothing") || rows >= plot.height.clamp(4, 50),
                "round {round}:\n{text}"
            );
        }
    }
}
