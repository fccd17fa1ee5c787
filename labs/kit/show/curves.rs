//! Curves for pages: the plot that the terminal shows, drawn by plotters.
//!
//! Series, axes and labels are those of the terminal's plot. plotters draws them, with axes, grid, lines and marks. But its
//! colours are fixed, and none of its lines is dashed. So it draws in unusual colours, each a name for one series, and
//! [`dress`] replaces them with the page's colours and dashes.

use super::axis::{Axis, Tick};
use super::plot::{Plot, Style, labelled};
use super::screen::Screen;
use super::svg::{WIDTH, picture, rank_colour, text};
use super::text::{LongWords, columns, fold};
use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, Cross, DynElement, IntoDynElement, PathElement, TriangleMarker};
use plotters::series::LineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, IntoFont, RGBColor, ShapeStyle, TextStyle};
use std::io;
use std::ops::Range;

/// plotters counts in whole units. So many of them make one of the page's, and curves are smooth.
const FINE: f64 = 10.0;

/// How lines differ without colour, in plotters' units: a pattern for each of the six colours.
const DASHES: [&str; 6] = [
    "none",
    "70 30",
    "20 30",
    "80 30 20 30",
    "140 40",
    "80 30 20 30 20 30",
];

/// Room for a letter, which is 13 high, and for a line of them.
const LETTER: f64 = 8.5;
const LINE: f64 = 18.0;

/// Letters of a value at an axis; what is longer is cut.
const LABEL: usize = 14;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

impl Plot<'_> {
    /// The plot as an inline SVG. Only with the feature `figures`.
    pub fn svg(&self) -> String {
        let limits = self.limits();
        let caption = self.caption(&Screen::plain(), limits);
        let Some(axes) = self.axes(limits) else {
            let said = lines(&format!("{caption}: nothing to plot"));
            let line = |(row, line): (usize, &String)| text(0.0, LINE * row as f64, "start", line);
            return picture(
                &caption,
                LINE * said.len() as f64 + 8.0,
                &(1..).zip(&said).map(line).collect::<String>(),
            );
        };
        let said = lines(&caption);
        let key = self.key();
        let head = LINE * (said.len() + 1 + key.last().map_or(0, |entry| entry.1)) as f64 + 4.0;
        let height = head + LINE * (self.height.clamp(4, 50) + 3) as f64;

        let mut drawn = String::new();
        let size = (fine(WIDTH).unsigned_abs(), fine(height).unsigned_abs());
        let root = SVGBackend::with_string(&mut drawn, size).into_drawing_area();
        let (above, below) = root.split_vertically(fine(head));
        let done = self
            .head(&above, &said, &key)
            .and_then(|()| self.chart(&below, axes, limits));
        done.expect("plotters writes to a string");
        // plotters writes the rest when it is dropped.
        drop((root, above, below));
        picture(&caption, height, &dress(&drawn))
    }

    /// The names of the series: how far from the left and in which row each entry begins, and what is written.
    fn key(&self) -> Vec<(f64, usize, String)> {
        const SAMPLE: f64 = 30.0;
        let mut next = (0.0, 0usize);
        let entry = |name: &str| {
            let name = clipped(name, ((WIDTH - SAMPLE) / LETTER) as usize);
            let width = SAMPLE + width(&name);
            if next.0 + width > WIDTH {
                next = (0.0, next.1 + 1);
            }
            let (x, row) = next;
            next.0 += width + 10.0;
            (x, row, name)
        };
        self.series
            .iter()
            .map(|series| series.name)
            .map(entry)
            .collect()
    }

    fn head(&self, area: &Area, said: &[String], key: &[(f64, usize, String)]) -> Drawn {
        let letters = letters().pos(Pos::new(HPos::Left, VPos::Center));
        let at = |x: f64, row: usize| (fine(x), fine(LINE * (row as f64 + 0.5)));
        for (row, line) in said.iter().enumerate() {
            area.draw_text(line, &letters, at(0.0, row))?;
        }
        for (i, (series, (x, row, name))) in self.series.iter().zip(key).enumerate() {
            let row = said.len() + row;
            match series.style {
                Style::Line => area.draw(&PathElement::new(
                    [at(*x, row), at(x + 24.0, row)],
                    stroke(i),
                ))?,
                Style::Dots => area.draw(&mark(i, at(x + 12.0, row)))?,
            }
            area.draw_text(name, &letters, at(x + 30.0, row))?;
        }
        Ok(())
    }

    /// Axes, grid and series.
    fn chart(&self, area: &Area, axes: (Axis, Axis), limits: (f64, f64)) -> Drawn {
        let mut x = Side::new(axes.0.end_ticks(), axes.0, self.labels.x);
        let y = Side::new(axes.1.round_ticks(), axes.1, self.labels.y);
        let half = |tick: Option<&Tick>| tick.map_or(0.0, |tick| width(&tick.label) / 2.0);
        let widest = y
            .ticks
            .iter()
            .map(|tick| width(&tick.label))
            .fold(0.0, f64::max);
        let left = (widest + 10.0).max(half(x.ticks.first()));
        let right = half(x.ticks.last()).max(6.0);
        let apart = |a: &Tick, b: &Tick| {
            (b.place - a.place) * (WIDTH - left - right) > half(Some(a)) + half(Some(b)) + LETTER
        };
        if let [first, middle, last] = &x.ticks[..]
            && !(apart(first, middle) && apart(middle, last))
        {
            x.ticks.remove(1);
        }
        let mut chart = ChartBuilder::on(area)
            .margin_top(fine(8.0))
            .margin_bottom(fine(2.0))
            .margin_right(fine(right))
            .x_label_area_size(fine(2.2 * LINE))
            .y_label_area_size(fine(left))
            .build_cartesian_2d(x, y)?;
        let thin = fine(1.0).unsigned_abs();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(BLACK.mix(0.15).stroke_width(thin))
            .axis_style(BLACK.mix(0.5).stroke_width(thin))
            .set_all_tick_mark_size(fine(4.0))
            .label_style(letters())
            .x_desc(clipped(self.x_label, (WIDTH / 2.0 / LETTER) as usize))
            .draw()?;
        let is_shown = |&(x, y): &(f64, f64)| self.is_shown(x, y, limits);
        // Lines first and dots over them, so that dots are never hidden.
        for (i, series) in self.in_style(Style::Line) {
            for run in series.points.split(|point| !is_shown(point)) {
                match run {
                    // A line from one point to nowhere has no length, but the point is there.
                    &[point] => chart.draw_series([mark(i, point)])?,
                    _ => chart.draw_series(LineSeries::new(run.iter().copied(), stroke(i)))?,
                };
            }
        }
        for (i, series) in self.in_style(Style::Dots) {
            let points = series.points.iter().copied().filter(is_shown);
            chart.draw_series(points.map(|point| mark(i, point)))?;
        }
        Ok(())
    }
}

/// An axis as plotters asks for it. (plotters' own logarithmic axis has no labels within a decade.)
struct Side {
    axis: Axis,
    ticks: Vec<Tick>,
}

impl Side {
    fn new(ticks: Vec<Tick>, axis: Axis, label: Option<fn(f64) -> String>) -> Side {
        let ticks = labelled(&Screen::plain(), ticks, label).into_iter();
        Side {
            axis,
            ticks: ticks
                .map(|tick| Tick {
                    label: clipped(&tick.label, LABEL),
                    ..tick
                })
                .collect(),
        }
    }
}

impl Ranged for Side {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.axis.place(*value) * f64::from(to - from)).round() as i32
    }

    /// The values that are written at the axis; plotters also asks for some to draw finer lines at.
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.iter().map(|tick| tick.value).collect()
        }
    }

    fn range(&self) -> Range<f64> {
        let value = |tick: Option<&Tick>| tick.map_or(0.0, |tick| tick.value);
        value(self.ticks.first())..value(self.ticks.last())
    }
}

impl ValueFormatter<f64> for Side {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.value == *value);
        tick.map_or(String::new(), |tick| tick.label.clone())
    }
}

fn fine(units: f64) -> i32 {
    (units * FINE).round() as i32
}

fn width(words: &str) -> f64 {
    LETTER * columns(words) as f64
}

fn lines(words: &str) -> Vec<String> {
    fold(words, (WIDTH / LETTER) as usize, LongWords::Cut)
}

fn clipped(words: &str, letters: usize) -> String {
    if columns(words) <= letters {
        words.to_owned()
    } else {
        words.chars().take(letters - 1).chain(['…']).collect()
    }
}

/// Letters of the page's own font. (plotters' sizes are those of a font's lines.)
fn letters() -> TextStyle<'static> {
    ("inherit", 1.24 * (13.0 * FINE)).into_font().color(&BLACK)
}

/// The names of the colours of line and mark number `i`.
fn names(i: usize) -> [RGBColor; 2] {
    [1, 2].map(|kind| RGBColor(kind, 0, (i % DASHES.len()) as u8))
}

fn stroke(i: usize) -> ShapeStyle {
    names(i)[0].stroke_width(fine(2.0).unsigned_abs())
}

/// The mark of series `i`, told from its neighbours' by its form.
fn mark<'a, At: Clone + 'static>(i: usize, at: At) -> DynElement<'static, SVGBackend<'a>, At> {
    let radius = fine(4.0);
    let line = names(i)[1].stroke_width(fine(2.0).unsigned_abs());
    match i % 4 {
        0 => Circle::new(at, radius, line.filled()).into_dyn(),
        1 => Circle::new(at, radius, line).into_dyn(),
        2 => TriangleMarker::new(at, fine(5.0), line.filled()).into_dyn(),
        _ => Cross::new(at, radius, line).into_dyn(),
    }
}

/// The drawing by plotters, as a part of the page's picture: without the frame of fixed size, and with the page's colour in
/// place of black, and colours and dashes in place of their names.
fn dress(drawn: &str) -> String {
    let inside = drawn
        .split_once('\n')
        .and_then(|(_, rest)| rest.rsplit_once("</svg>"));
    let mut inside = inside
        .map_or("", |(inside, _)| inside)
        .replace("\"#000000\"", "\"currentColor\"");
    for (i, dashes) in DASHES.iter().enumerate() {
        let [line, mark] = names(i).map(|RGBColor(r, g, b)| format!("\"#{r:02X}{g:02X}{b:02X}\""));
        let colour = format!("\"{}\"", rank_colour(i));
        inside = inside
            .replace(&line, &format!("{colour} stroke-dasharray=\"{dashes}\""))
            .replace(&mark, &colour);
    }
    let mut lines = format!(
        "<g transform=\"scale({})\" stroke-linejoin=\"round\">\n",
        1.0 / FINE
    );
    // An empty line, of an empty name, would end the HTML block in which a page holds the picture.
    for line in inside
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
    {
        // Points are two numbers each: 1,234 could be one.
        lines += &if line.starts_with("<poly") {
            line.replace(',', " ")
        } else {
            line.to_owned()
        };
        lines.push('\n');
    }
    lines + "</g>\n"
}

#[cfg(test)]
mod tests {
    use super::super::plot::Series;
    use super::super::plot::tests::{Numbers, any_plot};
    use super::*;

    /// The value of an attribute in each element that has it, a number in the page's units.
    fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
        let of_line = |line: &str| {
            let value = line
                .strip_prefix(element)?
                .split_once(&format!(" {attribute}=\""))?
                .1
                .split('"')
                .next()?;
            Some(value.parse::<f64>().unwrap_or_else(|_| panic!("{line}")) / FINE)
        };
        svg.lines().filter_map(of_line).collect()
    }

    /// All texts, each with the x at which it begins and ends, and its y.
    fn texts(svg: &str) -> Vec<(String, f64, f64, f64)> {
        let x = numbers(svg, "<text", "x");
        let y = numbers(svg, "<text", "y");
        let text = |(i, rest): (usize, &str)| {
            let (head, rest) = rest.split_once(">\n").unwrap();
            let words = rest.split_once("</text>").unwrap().0.trim_end();
            let shown = words
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&")
                .replace("&quot;", "\"");
            let before = [("start", 0.0), ("middle", 0.5), ("end", 1.0)];
            let before = before
                .iter()
                .find(|(anchor, _)| head.contains(&format!("text-anchor=\"{anchor}\"")))
                .unwrap()
                .1;
            let from = x[i] - before * width(&shown);
            (shown.clone(), from, from + width(&shown), y[i])
        };
        svg.split("<text ").skip(1).enumerate().map(text).collect()
    }

    /// The coordinates of each line's points, with the legend's samples, in order.
    fn strokes(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let lines = svg.lines().filter(|line| line.contains("stroke-dasharray"));
        let points = |line: &str| {
            let points = line
                .split_once("points=\"")
                .unwrap()
                .1
                .split('"')
                .next()
                .unwrap()
                .split_whitespace();
            let numbers: Vec<f64> = points
                .map(|text| text.parse::<f64>().unwrap() / FINE)
                .collect();
            numbers
                .chunks(2)
                .map(|point| (point[0], point[1]))
                .collect()
        };
        lines.map(points).collect()
    }

    #[test]
    fn a_plot_has_its_names_values_and_points() {
        let plot = Plot::new("loss <nats>", "step")
            .series(Series::line(
                "train",
                (0..50).map(|x| (f64::from(x), 4.0 - 0.04 * f64::from(x))),
            ))
            .series(Series::dots(
                "val",
                [(0.0, 4.0), (49.0, f64::NAN), (24.5, 3.02)],
            ));
        let svg = plot.svg();
        let words: Vec<String> = texts(&svg).into_iter().map(|text| text.0).collect();
        assert_eq!(
            words,
            [
                "loss <nats> · 1 point not finite",
                "train",
                "val",
                "step",
                "2.5",
                "3.0",
                "3.5",
                "4.0",
                "0",
                "24",
                "49"
            ]
        );
        let lines = strokes(&svg);
        let dots = (
            numbers(&svg, "<circle", "cx"),
            numbers(&svg, "<circle", "cy"),
        );
        assert_eq!(
            (lines.len(), lines[1].len(), dots.0.len()),
            (2, 50, 3),
            "the key's line and dot, and the plot's"
        );
        // Both series at step 0, and the middle of a straight line: the same places but for rounding.
        let line = &lines[1];
        let near = |a: f64, b: f64| (a - b).abs() < 0.2;
        assert!(
            near(line[0].0, dots.0[1]) && near(line[0].1, dots.1[1]),
            "{svg}"
        );
        assert!(
            near((line[0].0 + line[49].0) / 2.0, dots.0[2])
                && near((line[0].1 + line[49].1) / 2.0, dots.1[2])
        );
        // The curve ends where the axes end: the last point is at the right end of the grid's lines.
        assert!(
            numbers(&svg, "<line", "x2")
                .iter()
                .all(|&end| near(end, line[49].0)),
            "{svg}"
        );
    }

    #[test]
    fn the_page_decides_on_colours_and_font() {
        let all = (0..8).flat_map(|i| {
            let points = move || (0..3).map(move |x| (f64::from(x), f64::from(i)));
            [
                Series::line("\"#000000\" & <b>", points()),
                Series::dots("", points()),
            ]
        });
        let svg = all.fold(Plot::new("t", "x"), Plot::series).svg();
        let fixed = svg
            .split("\"#")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap());
        for colour in fixed {
            assert!(
                (0..6).any(|rank| rank_colour(rank) == format!("#{colour}")),
                "{colour}"
            );
        }
        assert!(
            ["stroke", "fill"]
                .iter()
                .all(|what| svg.contains(&format!("{what}=\"currentColor\""))),
            "{svg}"
        );
        assert_eq!(
            svg.matches("font-family=").count(),
            svg.matches("font-family=\"inherit\"").count()
        );
        assert_eq!(
            (
                svg.matches("<svg").count(),
                svg.matches("</svg>").count(),
                svg.matches("://").count()
            ),
            (1, 1, 1)
        );
        assert!(
            svg.contains(">\n&quot;#000000&quot; &amp; &lt;b&gt;\n<"),
            "a name is what it is\n{svg}"
        );
        // Each of six neighbours has a colour and a pattern of its own, on the curve as in the key.
        for (i, dashes) in DASHES.iter().enumerate() {
            let look = format!(
                "stroke=\"{}\" stroke-dasharray=\"{dashes}\"",
                rank_colour(i)
            );
            let uses = (0..16)
                .step_by(2)
                .filter(|series| series % DASHES.len() == i)
                .count();
            assert_eq!(svg.matches(&look).count(), 2 * uses, "{look}");
        }
        assert!(
            svg.starts_with(
                "<svg class=\"figure\" role=\"img\" aria-label=\"t\" viewBox=\"0 0 480 "
            ),
            "{svg}"
        );
        assert!(
            svg.contains("width=\"100%\"") && !svg.contains("\n\n"),
            "{svg}"
        );
    }

    fn long(x: f64) -> String {
        format!("{x} exabytes/day")
    }

    #[test]
    fn axes_have_the_units_that_were_asked_for() {
        let plot = Plot::new("time", "bytes")
            .log_x()
            .log_y()
            .labels(|x| format!("{x} B"), |y| format!("{y} s"));
        let svg = plot
            .series(Series::line(
                "ring",
                [(1.0, 1.0), (64.0, 10.0), (4096.0, 100.0)],
            ))
            .svg();
        let texts = texts(&svg);
        let at = |label: &str| {
            texts
                .iter()
                .find(|text| text.0 == label)
                .unwrap_or_else(|| panic!("{label}: {svg}"))
        };
        // On two logarithmic axes a power is a straight line, and its values stand where the axes say.
        let line = &strokes(&svg)[1];
        let middle = |label: &str| (at(label).1 + at(label).2) / 2.0;
        for (i, (x, y)) in [("1 B", "1 s"), ("64 B", "10 s"), ("4096 B", "100 s")]
            .into_iter()
            .enumerate()
        {
            assert!(
                (line[i].0 - middle(x)).abs() < 0.3 && (line[i].1 - at(y).3).abs() < 0.3,
                "{x} {y}: {svg}"
            );
        }
        // If long values would touch, the middle one is left out.
        let few = Plot::new("t", "x")
            .series(Series::dots("", [(1.0, 0.0), (4.0, 0.0)]))
            .labels(long, long)
            .svg();
        let values = [1.0, 2.0, 4.0].map(|x| few.contains(&format!(">\n{}\n<", long(x))));
        assert_eq!(values, [true, false, true], "{few}");
        // Within a decade, too, values are written.
        let svg = Plot::new("t", "x")
            .log_y()
            .series(Series::line("", [(0.0, 2.0), (1.0, 4.2)]))
            .svg();
        assert!(
            ["2", "3", "4"]
                .iter()
                .all(|label| svg.contains(&format!(">\n{label}\n<"))),
            "{svg}"
        );
    }

    #[test]
    fn a_gap_stays_a_gap_and_a_point_between_gaps_is_drawn() {
        let points = [0.0, 1.0, f64::NAN, 2.0, f64::INFINITY, 1.0, 0.0]
            .into_iter()
            .enumerate();
        let plot = Plot::new("t", "x").series(Series::line("", points.map(|(x, y)| (x as f64, y))));
        let svg = plot.svg();
        let lengths: Vec<usize> = strokes(&svg).iter().map(Vec::len).collect();
        assert_eq!(
            (lengths, svg.matches("<circle").count()),
            (vec![2, 2, 2], 1),
            "the key's line and two parts\n{svg}"
        );
    }

    #[test]
    fn what_is_left_out_is_said_and_not_drawn() {
        let points = (0..40).map(|i| (f64::from(i), if i == 7 { 80.0 } else { f64::from(i % 4) }));
        let plot = Plot::new("loss", "step")
            .series(Series::line("train", points))
            .clip_outliers();
        let svg = plot.svg();
        assert!(svg.contains("loss · 1 point above, up to 80.0"), "{svg}");
        let lengths: Vec<usize> = strokes(&svg).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 7, 32]);
        assert!(
            texts(&svg).iter().any(|text| text.0 == "3"),
            "an axis for what is shown\n{svg}"
        );
        assert!(
            Plot::new("loss", "step")
                .svg()
                .contains(">loss: nothing to plot<")
        );
    }

    #[test]
    fn nothing_leaves_the_frame() {
        let mut random = Numbers(1);
        for round in 0..1000 {
            let mut plot = any_plot(&mut random);
            if round % 2 == 0 {
                let long = "a name so long that no row of the key has room for the whole of it, nor half of this one";
                plot = Plot {
                    x_label: long,
                    ..plot
                }
                .series(Series::dots(long, [(1.0, 1.0)]));
                plot = plot.labels(
                    |x| format!("{x:e} units of some length"),
                    |y| format!("{y}"),
                );
            }
            let svg = plot.svg();
            if svg.contains("nothing") {
                continue;
            }
            let height: f64 = svg
                .split("viewBox=\"0 0 480 ")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            for (words, from, to, y) in texts(&svg) {
                assert!(
                    from > -0.1 && to < WIDTH + 0.1 && (6.0..=height).contains(&y),
                    "round {round}: {words:?}\n{svg}"
                );
            }
            let dots = numbers(&svg, "<circle", "cx")
                .into_iter()
                .zip(numbers(&svg, "<circle", "cy"));
            for (x, y) in strokes(&svg).into_iter().flatten().chain(dots) {
                assert!(
                    (0.0..WIDTH - 4.0).contains(&x) && (4.0..height - 4.0).contains(&y),
                    "round {round}\n{svg}"
                );
            }
            assert!(
                !svg.contains("NaN") && !svg.contains("\n\n"),
                "round {round}\n{svg}"
            );
        }
    }
}
