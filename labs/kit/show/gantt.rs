//! Gantt charts of pipelines: one row per rank, one bar per pass, and in the bar the number of its
//! micro-batch.
//!
//! The hue says forward or backward, and the row says the rank.

use super::activity::Activity;
use super::colour::{Hue, of_activity};
use super::screen::Screen;
use super::text::{INDENT, LongWords, columns, fold, pad_left};
use super::timeline::{legend, legend_item, sign};

/// One pass of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    pub activity: Activity,
    pub chunk: usize,
    /// The micro-batch.
    pub number: usize,
    /// Seconds.
    pub start: f64,
    pub end: f64,
}

/// One step of all ranks. Time begins at 0.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Printed above the rows.
    pub title: String,
    /// Each rank's bars, in order.
    pub ranks: Vec<Vec<Bar>>,
}

impl Chart {
    /// When the last pass ends.
    pub fn end(&self) -> f64 {
        let ends = self.ranks.iter().flatten().map(|bar| bar.end);
        ends.filter(|end| end.is_finite()).fold(0.0, f64::max)
    }
}

/// Draws charts under each other, all to one scale, never wider than the screen. In each row,
/// columns without a bar are time in which the rank waits: the bubble.
pub fn gantt(screen: &Screen, charts: &[Chart]) -> String {
    let end = charts.iter().map(Chart::end).fold(0.0, f64::max);
    if end <= 0.0 {
        return format!("{INDENT}nothing to show: no time passed");
    }
    let ranks = charts.iter().map(|chart| chart.ranks.len()).max().unwrap_or(0);
    let gutter = columns(&format!("rank {}", ranks.saturating_sub(1)));
    let margin = INDENT.len() + gutter + 2;
    let room = screen.width.saturating_sub(margin).max(20);
    let bar = screen.dim(screen.either("│", "|"));
    let bars = || charts.iter().flat_map(|chart| chart.ranks.iter().flatten());
    let passes = [Activity::FORWARD, Activity::BACKWARD, Activity::WEIGHTS];
    let occurring = passes
        .into_iter()
        .filter(|activity| bars().any(|bar| bar.activity == *activity));
    let items = occurring
        .chain([Activity::WAITING])
        .map(|activity| legend_item(activity, screen));
    let digits = "(digits:\u{a0}the\u{a0}micro-batch)".to_string();
    let mut lines = legend(items.chain([digits]), screen);
    for chart in charts {
        let title = fold(&chart.title, screen.width - INDENT.len(), LongWords::Cut);
        lines.extend(title.iter().map(|line| format!("{INDENT}{}", screen.bold(line))));
        for (rank, bars) in chart.ranks.iter().enumerate() {
            let name = pad_left(&format!("rank {rank}"), gutter);
            let picture = row(screen, bars, room, chart.end(), end);
            lines.push(format!("{INDENT}{name} {bar}{}", painted(screen, &picture)));
        }
    }
    let corner = screen.either("└", "+");
    let axis = screen.dim(corner.to_owned() + &screen.either("─", "-").repeat(room));
    let last = pad_left(&screen.seconds(end), room - 1);
    lines.push(format!("{}{axis}", " ".repeat(margin - 1)));
    lines.push(format!("{}0{last}", " ".repeat(margin)));
    lines.join("\n")
}

/// A column of a row: its character, what the rank does, and whether the character is a digit.
type Cell = (char, Option<Activity>, bool);

/// One row's picture, a character per column: waiting until the chart's own end, and bars over it.
fn row(screen: &Screen, bars: &[Bar], room: usize, own_end: f64, end: f64) -> Vec<Cell> {
    let column = |moment: f64| ((moment / end).clamp(0.0, 1.0) * room as f64).round() as usize;
    let waiting = (sign(Activity::WAITING, screen), None, false);
    let mut row = vec![waiting; column(own_end)];
    row.resize(room, (' ', None, false));
    for bar in bars {
        let place = column(bar.start)..column(bar.end).max(column(bar.start));
        let number = bar.number.to_string();
        // The glyph comes first, so that bars without a gap between them can be counted. Where a
        // hue says what a pass is, a short one needs no glyph.
        let first = usize::from(!screen.colour || place.len() > number.len());
        let fits = place.len() >= first + number.len();
        row[place.clone()].fill((sign(bar.activity, screen), Some(bar.activity), false));
        for (column, digit) in
            row[place].iter_mut().skip(first).zip(number.chars()).filter(|_| fits)
        {
            *column = (digit, Some(bar.activity), true);
        }
    }
    row
}

/// A row in colours. A digit is in the background's colour on its pass's, so that it can be read.
fn painted(screen: &Screen, row: &[Cell]) -> String {
    let end = row.iter().rposition(|&(c, ..)| c != ' ');
    let row = &row[..end.map_or(0, |last| last + 1)];
    let runs = row.chunk_by(|a, b| (a.1, a.2) == (b.1, b.2));
    let paint = |run: &[Cell]| {
        let text: String = run.iter().map(|&(c, ..)| c).collect();
        let (_, activity, is_digit) = run[0];
        let hue: Option<Hue> = activity.and_then(of_activity);
        match hue {
            Some(hue) if is_digit => screen.on_hue(hue, text),
            Some(hue) => screen.hue(hue, text),
            None => screen.dim(text),
        }
    };
    runs.map(paint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 units of time: two forward passes of 1 and a backward pass of 2.
    fn chart(title: &str, slower: f64) -> Chart {
        let bar = |activity, number, start: f64, end: f64| Bar {
            activity,
            chunk: 0,
            number,
            start: start * slower,
            end: end * slower,
        };
        let first =
            vec![bar(Activity::FORWARD, 0, 0.0, 1.0), bar(Activity::BACKWARD, 12, 2.0, 4.0)];
        let second = vec![bar(Activity::FORWARD, 7, 1.0, 2.0)];
        Chart { title: title.to_owned(), ranks: vec![first, second] }
    }

    #[test]
    fn charts_share_one_scale_and_each_column_without_a_bar_is_waiting() {
        let screen = Screen { width: 34, ..Screen::plain() };
        let expected = "
  ▓ forward   ▒ backward
  · waiting
  (digits: the micro-batch)
  predicted
  rank 0 │▓0▓···▒12▒▒▒
  rank 1 │···▓7▓······
  measured
  rank 0 │▓0▓▓▓▓······▒12▒▒▒▒▒▒▒▒▒
  rank 1 │······▓7▓▓▓▓············
         └────────────────────────
          0                 8.00 s";
        let charts = [chart("predicted", 1.0), chart("measured", 2.0)];
        assert_eq!(gantt(&screen, &charts), expected.trim_matches('\n'));
        let ascii = gantt(&Screen { ascii: true, ..screen }, &charts);
        assert!(ascii.is_ascii() && ascii.contains("\n  rank 0 |F0F...B12BBB\n"), "{ascii}");
    }

    #[test]
    fn a_number_that_does_not_fit_is_left_out() {
        let screen = Screen { width: 30, ..Screen::plain() };
        let bars = |number| {
            vec![Bar {
                activity: Activity::FORWARD,
                chunk: 0,
                number,
                start: 0.0,
                end: 1.0,
            }]
        };
        let picture = |number| painted(&screen, &row(&screen, &bars(number), 20, 10.0, 10.0));
        assert_eq!(
            (picture(3), picture(10)),
            (format!("▓3{}", "·".repeat(18)), format!("▓▓{}", "·".repeat(18)))
        );
    }

    /// In colour a short pass is its digit, and without colour it is its glyph.
    #[test]
    fn hues_say_forward_and_backward_and_digits_stand_on_them() {
        let screen = Screen { width: 29, colour: true, ascii: true };
        let bar = |activity, number, start: f64| Bar {
            activity,
            chunk: 0,
            number,
            start,
            end: start + 1.0,
        };
        let bars = vec![
            bar(Activity::FORWARD, 3, 0.0),
            bar(Activity::BACKWARD, 4, 1.0),
            Bar { end: 20.0, ..bar(Activity::WEIGHTS, 5, 17.0) },
        ];
        let forward = "\x1b[7;38;5;75m3\x1b[0m";
        let backward = "\x1b[7;38;5;208m4\x1b[0m";
        let weights = "\x1b[38;5;106mW\x1b[0m\x1b[7;38;5;106m5\x1b[0m\x1b[38;5;106mW\x1b[0m";
        let waiting = format!("\x1b[2m{}\x1b[0m", ".".repeat(15));
        let expected = format!("{forward}{backward}{waiting}{weights}");
        let picture = |screen: &Screen| painted(screen, &row(screen, &bars, 20, 20.0, 20.0));
        assert_eq!(picture(&screen), expected);
        let plain = Screen { colour: false, ..screen };
        assert_eq!(picture(&plain), format!("FB{}W5W", ".".repeat(15)));
    }

    #[test]
    fn odd_times_do_no_harm_and_lines_stay_within_the_width() {
        for start in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 7.0, 1e300] {
            for end in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 7.0, 1e300] {
                let bars =
                    vec![Bar { activity: Activity::WEIGHTS, chunk: 0, number: 1, start, end }; 2];
                let chart = Chart { title: "x".into(), ranks: vec![bars; 3] };
                let text = gantt(&Screen::plain(), &[chart]);
                assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
            }
        }
    }
}
