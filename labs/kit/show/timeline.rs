//! A timeline (a Gantt chart): one row per rank, time from left to right.

use super::activity::{Activity, Interval};
use super::colour::of_activity;
use super::screen::Screen;
use super::svg::{Anchor, Page, WIDTH, dashed, in_rows, tinted};
use super::text::{INDENT, LongWords, columns, fold, pad_left, place_labels, widest};
use std::ops::Range;

/// Narrower screens are drawn for as if they had this width.
const NARROWEST: usize = 40;

/// The sign of an activity on this screen.
pub(super) fn sign(activity: Activity, screen: &Screen) -> char {
    screen.either(activity.glyph, activity.letter)
}

/// An activity's glyph in its hue and its name, without a space at which a line could end.
pub(super) fn legend_item(activity: Activity, screen: &Screen) -> String {
    let glyph = painted(activity, screen, &sign(activity, screen).to_string());
    format!("{glyph}\u{a0}{}", activity.name.replace(' ', "\u{a0}"))
}

/// The lines of a legend. A line may end between two items, not between a glyph and its name.
pub(super) fn legend(items: impl Iterator<Item = String>, screen: &Screen) -> Vec<String> {
    let legend = items.collect::<Vec<_>>().join("   ");
    let lines = fold(&legend, screen.width - INDENT.len(), LongWords::Cut);
    let line = |line: &String| format!("{INDENT}{}", line.replace('\u{a0}', " "));
    lines.iter().map(line).collect()
}

/// `text` in the hue of an activity. Waiting has none.
fn painted(activity: Activity, screen: &Screen, text: &str) -> String {
    of_activity(activity).map_or(screen.dim(text), |hue| screen.hue(hue, text))
}

/// An activity's place in the legend.
fn place(activity: Activity) -> usize {
    Activity::ALL.iter().position(|&one| one == activity).unwrap_or_default()
}

/// The timeline before it is drawn. Time begins at 0.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    /// Printed above the legend.
    pub title: String,
    /// Each row's name and what it did, in any order. Hues say what is done.
    pub rows: Vec<(String, Vec<Interval>)>,
    /// Times, in seconds, that are marked on the axis, in order, and the label below each.
    pub marks: Vec<(f64, String)>,
    /// The axis's name, at its end.
    pub axis: &'a str,
}

impl Timeline<'_> {
    /// The timeline as text, several lines without a line end at the last one, never wider than the
    /// screen (or 40 columns). A column shows what took most of its time; what is shorter than half
    /// a column may not be seen.
    pub fn render(&self, screen: &Screen) -> String {
        let screen = &Screen { width: screen.width.max(NARROWEST), ..screen.clone() };
        let gutter = widest(self.rows.iter().map(|row| &row.0)).min(screen.width / 3);
        let margin = INDENT.len() + gutter + 1;
        let room = screen.width - margin - 1;
        let end = self.end();

        let title = fold(&self.title, screen.width - INDENT.len(), LongWords::Cut);
        let title = title.iter().map(|line| screen.bold(line));
        let mut lines: Vec<String> = title.map(|line| format!("{INDENT}{line}")).collect();
        // Only activities that occur, each with its glyph.
        let items = self.occurring().map(|activity| legend_item(activity, screen));
        lines.extend(legend(items, screen));
        if end <= 0.0 {
            lines.push(format!("{INDENT}nothing to show: no time passed"));
            return lines.join("\n");
        }
        let bar = screen.dim(screen.either("│", "|"));
        for (name, intervals) in &self.rows {
            let name: String = name.chars().take(gutter).collect();
            let picture = row(screen, intervals, room, end);
            lines.push(format!("{INDENT}{} {bar}{picture}", pad_left(&name, gutter)));
        }
        if !self.marks.is_empty() || !self.axis.is_empty() {
            lines.extend(self.foot(screen, margin, room, end));
        }
        lines.join("\n")
    }

    /// When the last interval ends.
    fn end(&self) -> f64 {
        let ends = self.rows.iter().flat_map(|row| &row.1).map(|interval| interval.end);
        ends.filter(|end| end.is_finite()).fold(0.0, f64::max)
    }

    /// The activities that occur.
    fn occurring(&self) -> impl Iterator<Item = Activity> {
        let intervals = || self.rows.iter().flat_map(|row| &row.1);
        let occurs = move |activity: &Activity| {
            intervals().any(|i| i.activity == *activity && i.end > i.start)
        };
        Activity::ALL.into_iter().filter(occurs)
    }

    /// The timeline as an inline SVG: a bar for each interval with the letter of its activity,
    /// waiting as an outline.
    pub fn svg(&self) -> String {
        const GUTTER: f64 = 104.0;
        const ROW: f64 = 24.0;
        let at = |moment: f64| GUTTER + moment / self.end().max(1e-9) * (WIDTH - GUTTER - 2.0);
        let mut page = Page::default();
        let mut y = 2.0;
        for (name, intervals) in &self.rows {
            page.text((GUTTER - 8.0, y + 14.0), Anchor::End, name);
            for interval in intervals.iter().filter(|one| one.end > one.start) {
                bar(&mut page, at(interval.start)..at(interval.end), y, interval.activity);
            }
            y += ROW;
        }
        if !self.marks.is_empty() {
            let name = if self.axis.is_empty() { "time" } else { self.axis };
            page.text((GUTTER - 8.0, y + 16.0), Anchor::End, name);
            page.line((at(0.0), y), (WIDTH - 2.0, y), "stroke-opacity=\"0.5\"");
        }
        for (moment, label) in &self.marks {
            // A mark leads up through all rows: what ends there is seen.
            let dashes = "stroke-opacity=\"0.5\" stroke-dasharray=\"3 3\"";
            page.line((at(*moment), 0.0), (at(*moment), y + 5.0), dashes);
            let anchor = match *moment > 0.0 {
                true if at(*moment) > WIDTH - 30.0 => Anchor::End,
                true => Anchor::Middle,
                false => Anchor::Start,
            };
            page.text((at(*moment), y + 18.0), anchor, label);
        }
        y += if self.marks.is_empty() { 4.0 } else { ROW + 6.0 };
        let occurring: Vec<Activity> = self.occurring().collect();
        let widths = occurring.iter().map(|one| 26.0 + 7.5 * one.name.len() as f64);
        let mut bottom = y;
        for ((x, row), &activity) in in_rows(widths, 8.0).into_iter().zip(&occurring) {
            let y = y + ROW * row as f64;
            bar(&mut page, x + 1.0..x + 17.0, y, activity);
            page.text((x + 22.0, y + 14.0), Anchor::Start, activity.name);
            bottom = y;
        }
        page.finish(&self.title, bottom + ROW)
    }

    /// The axis with its marks, and what is written below them.
    fn foot(&self, screen: &Screen, margin: usize, room: usize, end: f64) -> [String; 2] {
        let corner = screen.either('└', '+');
        let rule = screen.either('─', '-');
        let mark = screen.either('┴', '+');
        let name = if self.axis.is_empty() {
            String::new()
        } else {
            format!(" {}", self.axis)
        };
        let mut axis = vec![rule; (room + 1).saturating_sub(columns(&name))];
        let column =
            |moment: f64| (moment / end * room as f64).round().clamp(0.0, room as f64) as usize;
        for &(moment, _) in &self.marks {
            if let Some(place) = axis.get_mut(column(moment)) {
                *place = mark;
            }
        }
        axis[0] = corner;
        let axis: String = axis.into_iter().collect();
        let labels = self
            .marks
            .iter()
            .map(|(moment, label)| (margin + column(*moment), label.as_str()));
        [
            format!("{}{}{name}", " ".repeat(margin), screen.dim(axis)),
            place_labels(labels, screen.width).trim_end().to_owned(),
        ]
    }
}

/// An interval on a page, with the letter of its activity where there is room for one.
fn bar(page: &mut Page, from_to: Range<f64>, y: f64, activity: Activity) {
    let width = from_to.end - from_to.start;
    let hue = of_activity(activity);
    let style = hue.map_or(dashed("currentColor"), |hue| tinted(hue.page));
    page.rect((from_to.start, y), (width, 18.0), style);
    if width > 9.0 && activity != Activity::WAITING {
        let middle = from_to.start + width / 2.0;
        page.text((middle, y + 14.0), Anchor::Middle, activity.letter);
    }
}

/// One row's picture, a character per column, without the empty ones at its end.
fn row(screen: &Screen, intervals: &[Interval], room: usize, end: f64) -> String {
    let width = end / room as f64;
    // Seconds of each activity in each column.
    let mut shares = vec![[0.0; Activity::ALL.len()]; room];
    for interval in intervals.iter().filter(|i| i.end > i.start) {
        let first = (interval.start.max(0.0) / width) as usize;
        for (column, share) in shares.iter_mut().enumerate().skip(first) {
            let from = column as f64 * width;
            let to = (column + 1) as f64 * width;
            if from >= interval.end {
                break;
            }
            share[place(interval.activity)] += interval.end.min(to) - interval.start.max(from);
        }
    }
    let most = |share: &[f64; Activity::ALL.len()]| {
        // A hair more for doing nothing: an interval that ends at a column's edge is not drawn in
        // the next one.
        let idle = width - share.iter().sum::<f64>() + 1e-9 * width;
        let (longest, seconds) = share
            .iter()
            .enumerate()
            .fold((0, 0.0), |best, (i, &s)| if s > best.1 { (i, s) } else { best });
        (seconds > 0.0 && seconds >= idle).then_some(Activity::ALL[longest])
    };
    let columns: Vec<Option<Activity>> = shares.iter().map(most).collect();
    let end = columns.iter().rposition(Option::is_some);
    let columns = &columns[..end.map_or(0, |last| last + 1)];
    let paint = |run: &[Option<Activity>]| match run[0] {
        Some(activity) => {
            let glyph = sign(activity, screen).to_string();
            painted(activity, screen, &glyph.repeat(run.len()))
        }
        None => " ".repeat(run.len()),
    };
    columns.chunk_by(|a, b| a == b).map(paint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVITIES: [Activity; 3] = [Activity::FORWARD, Activity::BACKWARD, Activity::WAITING];

    fn interval(activity: usize, start: f64, end: f64) -> Interval {
        Interval { activity: ACTIVITIES[activity], start, end }
    }

    /// 31 seconds on a screen of 41 columns, which leaves 31 for the picture: one second per
    /// column.
    fn timeline() -> Timeline<'static> {
        let rank0 = [interval(0, 0.0, 10.0), interval(1, 10.0, 25.0), interval(0, 26.0, 31.0)];
        let rank1 = [interval(1, 6.0, 12.0), interval(0, 0.0, 6.0), interval(2, 12.0, 25.0)];
        Timeline {
            title: "iterations 7 and 8".to_owned(),
            rows: vec![
                ("rank 0".to_owned(), rank0.to_vec()),
                ("rank 1".to_owned(), rank1.to_vec()),
            ],
            marks: vec![(0.0, "7".to_owned()), (26.0, "8".to_owned())],
            axis: "iter",
        }
    }

    #[test]
    fn two_ranks() {
        let expected = "
  iterations 7 and 8
  ▓ forward   ▒ backward   · waiting
  rank 0 │▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ ▓▓▓▓▓
  rank 1 │▓▓▓▓▓▓▒▒▒▒▒▒·············
         └─────────────────────────┴ iter
         7                         8
";
        let screen = Screen { width: 41, ..Screen::plain() };
        assert_eq!(timeline().render(&screen), expected.trim_matches('\n'));
    }

    #[test]
    fn two_ranks_in_ascii() {
        let expected = "
  iterations 7 and 8
  F forward   B backward   . waiting
  rank 0 |FFFFFFFFFFBBBBBBBBBBBBBBB FFFFF
  rank 1 |FFFFFFBBBBBB.............
         +-------------------------+ iter
         7                         8
";
        let screen = Screen { width: 41, ascii: true, ..Screen::plain() };
        assert_eq!(timeline().render(&screen), expected.trim_matches('\n'));
    }

    #[test]
    fn a_column_shows_what_took_most_of_it() {
        // Two columns per second.
        let screen = Screen { width: 40, ascii: true, ..Screen::plain() };
        let timeline = Timeline {
            title: String::new(),
            rows: vec![(
                String::new(),
                vec![interval(0, 0.0, 0.6), interval(1, 0.6, 0.65), interval(2, 0.7, 18.0)],
            )],
            marks: Vec::new(),
            axis: "",
        };
        let text = timeline.render(&screen);
        let row = text.lines().nth(2).unwrap();
        assert_eq!(row, format!("   |F{}", ".".repeat(35)));
    }

    #[test]
    fn no_two_activities_look_alike_and_none_like_an_amount() {
        for (i, one) in Activity::ALL.iter().enumerate() {
            assert!(!"█░".contains(one.glyph) && !"#".contains(one.letter), "{}", one.name);
            let alike = |other: &&Activity| other.glyph == one.glyph || other.letter == one.letter;
            assert_eq!(Activity::ALL[i + 1..].iter().find(alike), None, "{}", one.name);
        }
    }

    #[test]
    fn a_page_has_a_rectangle_for_each_interval_and_each_activity() {
        let svg = timeline().svg();
        assert_eq!(svg.matches("<rect").count(), 6 + 3, "{svg}");
        assert!(
            svg.contains(">rank 1<")
                && svg.contains(">waiting<")
                && svg.contains("stroke-dasharray"),
            "{svg}"
        );
        assert!(!svg.contains("\n\n") && !svg.contains("data"));
    }

    #[test]
    fn hues_say_what_is_done_and_rows_say_by_whom() {
        let screen = Screen { colour: true, width: 41, ascii: true };
        let text = timeline().render(&screen);
        let forward = "\x1b[38;5;75mFFFFFF\x1b[0m";
        let backward = "\x1b[38;5;208mBBBBBB\x1b[0m";
        let waiting = format!("\x1b[2m{}\x1b[0m", ".".repeat(13));
        let row = format!("  rank 1 \x1b[2m|\x1b[0m{forward}{backward}{waiting}");
        assert!(text.lines().any(|line| line == row), "{text}");
        assert!(text.contains("\x1b[38;5;75mF\x1b[0m forward"), "{text}");
    }

    #[test]
    fn odd_times_do_no_harm_and_lines_stay_within_the_width() {
        let times = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 0.3, 7.0, 1e300];
        for start in times {
            for end in times {
                for width in [10, 40, 80] {
                    let rows = vec![(
                        "a rather long name".to_owned(),
                        vec![interval(0, start, end), interval(2, 0.0, end)],
                    )];
                    let marks = vec![(start, "first".to_owned()), (end, "last".to_owned())];
                    let text = Timeline { rows, marks, ..timeline() }
                        .render(&Screen { width, ..Screen::plain() });
                    for line in text.lines() {
                        assert!(columns(line) <= width.max(40), "{start} {end} {width}: {line}");
                    }
                }
            }
        }
    }
}
