//! Curves for pages: the plot that the terminal shows, with its series, its axes and its labels, as
//! SVG.

use super::super::screen::Screen;
use super::super::svg::{Anchor, LETTER, Page, Point, WIDTH, curve_colour, in_rows, width};
use super::super::text::{LongWords, columns, fold};
use super::axis::{Axis, Tick};
use super::{Label, Plot, Style, labelled};

/// How lines differ without colour: a pattern for each of the six colours.
const DASHES: [&str; 6] = ["none", "7 3", "2 3", "8 3 2 3", "14 4", "8 3 2 3 2 3"];

/// Room for a line of letters, and how far its base line is below its middle.
const LINE: f64 = 18.0;
const BASE: f64 = 4.0;

/// Letters of a value at an axis; what is longer is cut.
const LABEL: usize = 14;

impl Plot<'_> {
    /// The plot as an inline SVG.
    pub fn svg(&self) -> String {
        let caption = self.caption(&Screen::plain());
        let mut page = Page::default();
        let Some((x, y)) = self.axes() else {
            let end = heading(&mut page, &format!("{caption}: nothing to plot"));
            return page.finish(&caption, end + 8.0);
        };
        let top = heading(&mut page, &caption);
        let top = self.key(&mut page, top) + 12.0;
        let bottom = top + LINE * self.height.clamp(4, 50) as f64 + 4.0;
        let area = Area::new(
            Side::new(
                if self.round_x { x.round_ticks() } else { x.end_ticks() },
                x,
                self.labels[0],
            ),
            Side::new(y.round_ticks(), y, self.labels[1]),
            (top, bottom),
        );
        area.axes(&mut page);
        let middle = ((area.left + area.right) / 2.0, bottom + 36.0);
        let name = clipped(self.x_label, (WIDTH / 2.0 / LETTER) as usize);
        page.text(middle, Anchor::Middle, name);

        let is_shown = |&(x, y): &Point| self.is_drawable(x, y);
        // Lines first and dots over them, so that dots are never hidden.
        for (i, series) in self.in_style(Style::Line) {
            for run in series.points.split(|point| !is_shown(point)) {
                match run {
                    [] => {}
                    // A line from one point to nowhere has no length, but the point is there.
                    &[point] => mark(&mut page, self.look(i), area.place(point)),
                    _ => page
                        .polyline(run.iter().map(|&point| area.place(point)), stroke(self.look(i))),
                }
            }
        }
        for (i, series) in self.in_style(Style::Dots) {
            for &point in series.points.iter().filter(|point| is_shown(point)) {
                mark(&mut page, self.look(i), area.place(point));
            }
        }
        page.finish(&caption, bottom + 41.0)
    }

    /// The names of the series, each with a sample, below `top`. Returns where they end.
    fn key(&self, page: &mut Page, top: f64) -> f64 {
        const SAMPLE: f64 = 30.0;
        const GAP: f64 = 10.0;
        let room = ((WIDTH - SAMPLE) / LETTER) as usize;
        let names: Vec<String> =
            self.series.iter().map(|series| clipped(series.name, room)).collect();
        let places = in_rows(names.iter().map(|name| SAMPLE + width(name)), GAP);
        let mut end = top;
        for (i, (&(x, row), name)) in places.iter().zip(&names).enumerate() {
            let middle = top + LINE * (row as f64 + 0.5);
            match self.series[i].style {
                Style::Line => {
                    let line = [x, x + 24.0].map(|x| (x, middle));
                    page.polyline(line.into_iter(), stroke(self.look(i)))
                }
                Style::Dots => mark(page, self.look(i), (x + 12.0, middle)),
            }
            page.text((x + SAMPLE, middle + BASE), Anchor::Start, name);
            end = middle + LINE / 2.0;
        }
        end
    }
}

/// The lines of a heading. Returns where they end.
fn heading(page: &mut Page, words: &str) -> f64 {
    let mut end = 0.0;
    for line in fold(words, (WIDTH / LETTER) as usize, LongWords::Cut) {
        page.text((0.0, end + LINE / 2.0 + BASE), Anchor::Start, line);
        end += LINE;
    }
    end
}

/// An axis, and the values that are written at it.
struct Side {
    axis: Axis,
    ticks: Vec<Tick>,
}

impl Side {
    fn new(ticks: Vec<Tick>, axis: Axis, label: Option<Label>) -> Side {
        let mut ticks = labelled(&Screen::plain(), ticks, label);
        for tick in &mut ticks {
            tick.label = clipped(&tick.label, LABEL);
        }
        Side { axis, ticks }
    }
}

/// The part of the page that has the curves.
struct Area {
    x: Side,
    y: Side,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    /// As wide as the values at its sides leave it.
    fn new(mut x: Side, y: Side, (top, bottom): (f64, f64)) -> Area {
        let half = |tick: Option<&Tick>| tick.map_or(0.0, |tick| width(&tick.label) / 2.0);
        let widest = y.ticks.iter().map(|tick| width(&tick.label)).fold(0.0, f64::max);
        let left = (widest + 10.0).max(half(x.ticks.first()));
        let right = WIDTH - half(x.ticks.last()).max(6.0);
        let apart = |a: &Tick, b: &Tick| {
            (b.place - a.place) * (right - left) > half(Some(a)) + half(Some(b)) + LETTER
        };
        if let [first, middle, last] = &x.ticks[..]
            && !(apart(first, middle) && apart(middle, last))
        {
            x.ticks.remove(1);
        }
        Area { x, y, left, right, top, bottom }
    }

    /// Where the shares of both axes are on the page.
    fn at(&self, x: f64, y: f64) -> Point {
        let right = self.left + x * (self.right - self.left);
        let up = self.bottom - y * (self.bottom - self.top);
        (right, up)
    }

    fn place(&self, (x, y): Point) -> Point {
        self.at(self.x.axis.place(x), self.y.axis.place(y))
    }

    /// Both axes with their values, and a fine line at each value of y.
    fn axes(&self, page: &mut Page) {
        const AXIS: &str = "stroke-opacity=\"0.5\"";
        for tick in &self.y.ticks {
            let (x, y) = self.at(0.0, tick.place);
            page.line((x, y), (self.right, y), "stroke-opacity=\"0.15\"");
            page.line((x - 4.0, y), (x, y), AXIS);
            page.text((x - 8.0, y + BASE), Anchor::End, &tick.label);
        }
        for tick in &self.x.ticks {
            let (x, y) = self.at(tick.place, 0.0);
            page.line((x, y), (x, y + 4.0), AXIS);
            page.text((x, y + 18.0), Anchor::Middle, &tick.label);
        }
        page.line(self.at(0.0, 0.0), self.at(0.0, 1.0), AXIS);
        page.line(self.at(0.0, 0.0), self.at(1.0, 0.0), AXIS);
    }
}

fn clipped(words: &str, letters: usize) -> String {
    if columns(words) <= letters {
        words.to_owned()
    } else {
        words.chars().take(letters - 1).chain(['…']).collect()
    }
}

/// The line of a series with look `i`.
fn stroke(i: usize) -> String {
    format!(
        "stroke=\"{}\" stroke-dasharray=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"",
        curve_colour(i),
        DASHES[i % DASHES.len()]
    )
}

/// The mark of a series with look `i`, told from its neighbours' by its form.
fn mark(page: &mut Page, i: usize, (x, y): Point) {
    let colour = curve_colour(i);
    let outlined = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"");
    match i % 4 {
        0 => page.circle((x, y), 4.0, format!("fill=\"{colour}\"")),
        1 => page.circle((x, y), 4.0, outlined),
        2 => page.add(format!(
            "<path d=\"M{x:.1} {:.1} l4.3 7.5 h-8.6 Z\" fill=\"{colour}\"/>",
            y - 5.0
        )),
        _ => page.add(format!(
            "<path d=\"M{:.1} {:.1} l8 8 m0 -8 l-8 8\" {outlined}/>",
            x - 4.0,
            y - 4.0
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::super::tests::{Numbers, any_plot};
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
            Some(value.parse::<f64>().unwrap_or_else(|_| panic!("{line}")))
        };
        svg.lines().filter_map(of_line).collect()
    }

    /// All texts, each with the x at which it begins and ends, and its y.
    fn texts(svg: &str) -> Vec<(String, f64, f64, f64)> {
        let lines = svg.lines().filter(|line| line.starts_with("<text "));
        let places = numbers(svg, "<text", "x").into_iter().zip(numbers(svg, "<text", "y"));
        let text = |(line, (x, y)): (&str, (f64, f64))| {
            let (head, words) = line.split_once('>').unwrap();
            let shown = words
                .trim_end_matches("</text>")
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&quot;", "\"")
                .replace("&amp;", "&");
            let before = match head.split("text-anchor=").nth(1) {
                Some("\"start\"") => 0.0,
                Some("\"middle\"") => 0.5,
                _ => 1.0,
            };
            let from = x - before * width(&shown);
            (shown.clone(), from, from + width(&shown), y)
        };
        lines.zip(places).map(text).collect()
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
            let numbers: Vec<f64> = points.map(|text| text.parse::<f64>().unwrap()).collect();
            numbers.chunks(2).map(|point| (point[0], point[1])).collect()
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
            .series(Series::dots("val", [(0.0, 4.0), (49.0, f64::NAN), (24.5, 3.02)]));
        let svg = plot.svg();
        let words: Vec<String> = texts(&svg).into_iter().map(|text| text.0).collect();
        assert_eq!(
            words,
            [
                "loss <nats> · 1 point not finite",
                "train",
                "val",
                "2.5",
                "3.0",
                "3.5",
                "4.0",
                "0",
                "24",
                "49",
                "step"
            ]
        );
        let lines = strokes(&svg);
        let dots = (numbers(&svg, "<circle", "cx"), numbers(&svg, "<circle", "cy"));
        assert_eq!(
            (lines.len(), lines[1].len(), dots.0.len()),
            (2, 50, 3),
            "the key's line and dot, and the plot's"
        );
        // Both series at step 0, and the middle of a straight line: the same places but for
        // rounding.
        let line = &lines[1];
        let near = |a: f64, b: f64| (a - b).abs() < 0.2;
        assert!(near(line[0].0, dots.0[1]) && near(line[0].1, dots.1[1]), "{svg}");
        assert!(
            near((line[0].0 + line[49].0) / 2.0, dots.0[2])
                && near((line[0].1 + line[49].1) / 2.0, dots.1[2])
        );
        // The curve ends where the axes end: the last point is at the right end of the lines that
        // reach farthest.
        let ends = numbers(&svg, "<line", "x2").into_iter();
        assert!(near(ends.fold(0.0, f64::max), line[49].0), "{svg}");
    }

    #[test]
    fn the_page_decides_on_colours_and_font() {
        let all = (0..8).flat_map(|i| {
            let points = move || (0..3).map(move |x| (f64::from(x), f64::from(i)));
            [Series::line("\"#000000\" & <b>", points()), Series::dots("", points())]
        });
        let svg = all.fold(Plot::new("t", "x"), Plot::series).svg();
        let fixed = svg.split("\"#").skip(1).map(|rest| rest.split('"').next().unwrap());
        for colour in fixed {
            assert!((0..6).any(|look| curve_colour(look) == format!("#{colour}")), "{colour}");
        }
        assert!(
            ["stroke", "fill"]
                .iter()
                .all(|what| svg.contains(&format!("{what}=\"currentColor\""))),
            "{svg}"
        );
        assert!(!svg.contains("font-family"), "{svg}");
        assert_eq!(
            (
                svg.matches("<svg").count(),
                svg.matches("</svg>").count(),
                svg.matches("://").count()
            ),
            (1, 1, 1)
        );
        assert!(
            svg.contains(">&quot;#000000&quot; &amp; &lt;b&gt;<"),
            "a name is what it is\n{svg}"
        );
        // Each of six neighbours has a colour and a pattern of its own, on the curve as in the key.
        for (i, dashes) in DASHES.iter().enumerate() {
            let look = format!("stroke=\"{}\" stroke-dasharray=\"{dashes}\"", curve_colour(i));
            let uses = (0..16).step_by(2).filter(|series| series % DASHES.len() == i).count();
            assert_eq!(svg.matches(&look).count(), 2 * uses, "{look}");
        }
        assert!(
            svg.starts_with(
                "<svg class=\"figure\" role=\"img\" aria-label=\"t\" viewBox=\"0 0 480 "
            ),
            "{svg}"
        );
        assert!(svg.contains("width=\"100%\"") && !svg.contains("\n\n"), "{svg}");
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
            .series(Series::line("ring", [(1.0, 1.0), (64.0, 10.0), (4096.0, 100.0)]))
            .svg();
        let texts = texts(&svg);
        let at = |label: &str| {
            texts
                .iter()
                .find(|text| text.0 == label)
                .unwrap_or_else(|| panic!("{label}: {svg}"))
        };
        // On two logarithmic axes a power is a straight line, and its values stand where the axes
        // say.
        let line = &strokes(&svg)[1];
        let middle = |label: &str| (at(label).1 + at(label).2) / 2.0;
        for (i, (x, y)) in
            [("1 B", "1 s"), ("64 B", "10 s"), ("4096 B", "100 s")].into_iter().enumerate()
        {
            assert!(
                (line[i].0 - middle(x)).abs() < 0.3 && (line[i].1 + BASE - at(y).3).abs() < 0.3,
                "{x} {y}: {svg}"
            );
        }
        assert!(line[0].1 > line[1].1 && line[1].1 > line[2].1, "more is higher: {svg}");
        // If long values would touch, the middle one is left out.
        let few = Plot::new("t", "x")
            .series(Series::dots("", [(1.0, 0.0), (4.0, 0.0)]))
            .labels(long, long)
            .svg();
        let values = [1.0, 2.0, 4.0].map(|x| few.contains(&format!(">{}<", long(x))));
        assert_eq!(values, [true, false, true], "{few}");
        // Within a decade, too, values are written.
        let svg = Plot::new("t", "x")
            .log_y()
            .series(Series::line("", [(0.0, 2.0), (1.0, 4.2)]))
            .svg();
        assert!(["2", "3", "4"].iter().all(|label| svg.contains(&format!(">{label}<"))), "{svg}");
    }

    #[test]
    fn a_gap_stays_a_gap_and_a_point_between_gaps_is_drawn() {
        let points = [0.0, 1.0, f64::NAN, 2.0, f64::INFINITY, 1.0, 0.0].into_iter().enumerate();
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
    fn nothing_to_plot_is_said() {
        assert!(Plot::new("loss", "step").svg().contains(">loss: nothing to plot<"));
    }

    #[test]
    fn nothing_leaves_the_frame() {
        let mut random = Numbers(1);
        for round in 0..1000 {
            let mut plot = any_plot(&mut random);
            if round % 2 == 0 {
                let long = "a name so long that no row of the key has room for the whole of it, nor half of this one";
                plot = Plot { x_label: long, ..plot }.series(Series::dots(long, [(1.0, 1.0)]));
                plot = plot.labels(|x| format!("{x:e} units of some length"), |y| format!("{y}"));
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
            let dots =
                numbers(&svg, "<circle", "cx").into_iter().zip(numbers(&svg, "<circle", "cy"));
            for (x, y) in strokes(&svg).into_iter().flatten().chain(dots) {
                assert!(
                    (0.0..WIDTH - 4.0).contains(&x) && (4.0..height - 4.0).contains(&y),
                    "round {round}\n{svg}"
                );
            }
            assert!(!svg.contains("NaN") && !svg.contains("\n\n"), "round {round}\n{svg}");
        }
    }
}
