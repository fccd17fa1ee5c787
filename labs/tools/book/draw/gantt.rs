//! Gantt charts of pipelines for pages.

use kit::show::Activity;
use kit::show::svg::{Anchor, Page, activity_colour, filled, in_rows};
use kit::show::{Bar, Chart};
use std::ops::Range;
use std::slice;

/// Units of the picture's width, and on the left for the ranks' names. A page shows it wide,
/// because a step has many passes.
const WIDTH: f64 = 600.0;
const GUTTER: f64 = 48.0;

/// A row, and in it the height of a bar.
const ROW: f64 = 21.0;
const HEIGHT: f64 = 18.0;

/// Draws charts under each other, all to one scale, as an inline SVG. Where all bars have room,
/// each has its letter and its micro-batch in it; else all have the micro-batch alone. A chunk has
/// its shade. Hatched is the time in which a rank waits: the bubble.
pub fn gantt(title: &str, charts: &[Chart]) -> String {
    let end = charts.iter().map(Chart::end).fold(0.0, f64::max).max(1e-9);
    let x = |moment: f64| GUTTER + (WIDTH - GUTTER - 1.0) * moment / end;
    let shown = shown(charts, (WIDTH - GUTTER - 1.0) / end);
    let mut page = Page::default();
    page.add(
        "<defs><pattern id=\"bubble\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <path d=\"M0 0 V6\" stroke=\"currentColor\" stroke-opacity=\"0.35\" stroke-width=\"2\"/></pattern></defs>",
    );
    let mut y = 0.0;
    for chart in charts {
        if !chart.title.is_empty() {
            y += 15.0;
            page.text((0.0, y), Anchor::Start, &chart.title);
            y += 5.0;
        }
        let chunks = chunks(slice::from_ref(chart));
        for (rank, bars) in chart.ranks.iter().enumerate() {
            page.text((GUTTER - 6.0, y + 14.0), Anchor::End, format!("rank {rank}"));
            let mut free = 0.0;
            for bar in bars {
                if bar.start > free {
                    wait(&mut page, x(free)..x(bar.start), y);
                }
                free = bar.end;
                let place = x(bar.start)..x(bar.end);
                pass(&mut page, bar.activity, place.clone(), y, shade(bar.chunk, chunks));
                label(&mut page, bar, place, y, shown);
            }
            if free < chart.end() {
                wait(&mut page, x(free)..x(chart.end()), y);
            }
            y += ROW;
        }
        y += 5.0;
    }
    let bottom = legend(&mut page, charts, shown, y);
    page.finish_wide(title, (WIDTH, bottom), 10.0)
}

/// How many chunks a rank has.
fn chunks(charts: &[Chart]) -> usize {
    let bars = charts.iter().flat_map(|chart| chart.ranks.iter().flatten());
    1 + bars.map(|bar| bar.chunk).max().unwrap_or(0)
}

/// The first chunk is the darkest.
fn shade(chunk: usize, chunks: usize) -> f64 {
    if chunks > 1 {
        0.75 - 0.5 * chunk as f64 / (chunks - 1) as f64
    } else {
        0.5
    }
}

/// Time in which a rank waits.
fn wait(page: &mut Page, place: Range<f64>, y: f64) {
    let size = (place.end - place.start, HEIGHT);
    page.rect((place.start, y), size, filled("url(#bubble)"));
}

/// A pass, in the colour of its kind.
fn pass(page: &mut Page, activity: Activity, place: Range<f64>, y: f64, shade: f64) {
    let wide = place.end - place.start;
    let wide = wide - (0.1 * wide).min(0.8);
    let style = format!("{} fill-opacity=\"{shade:.2}\"", filled(activity_colour(activity)));
    page.rect((place.start, y), (wide, HEIGHT), style);
}

/// What bars have in them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Number,
    LetterAndNumber,
}

/// What the shortest of all bars has room for, if a unit of time takes `scale` units of the page.
fn shown(charts: &[Chart], scale: f64) -> Shown {
    let bars = || charts.iter().flat_map(|chart| chart.ranks.iter().flatten());
    let digits = bars().map(|bar| bar.number.to_string().len()).max();
    let long = 6.2 * digits.unwrap_or(0) as f64;
    let shortest = bars().map(|bar| scale * (bar.end - bar.start)).fold(f64::INFINITY, f64::min);
    if shortest > long + 8.5 {
        Shown::LetterAndNumber
    } else if shortest >= long {
        Shown::Number
    } else {
        Shown::Nothing
    }
}

/// The micro-batch of a pass.
fn label(page: &mut Page, bar: &Bar, place: Range<f64>, y: f64, shown: Shown) {
    let words = match shown {
        Shown::Nothing => return,
        Shown::Number => bar.number.to_string(),
        Shown::LetterAndNumber => format!("{}{}", bar.activity.letter, bar.number),
    };
    let middle = (place.start + place.end) / 2.0;
    page.add("<g font-size=\"10\">");
    page.text((middle, y + 13.0), Anchor::Middle, words);
    page.add("</g>");
}

/// The activities that occur, each with its letter where bars have letters, the bubble, the chunks'
/// shades, and what numbers are. Returns where the legend ends.
fn legend(page: &mut Page, charts: &[Chart], shown: Shown, top: f64) -> f64 {
    let occurs = |activity: &Activity| {
        let mut bars = charts.iter().flat_map(|chart| chart.ranks.iter().flatten());
        bars.any(|bar| bar.activity == *activity)
    };
    let passes = [Activity::FORWARD, Activity::BACKWARD, Activity::WEIGHTS];
    let passes: Vec<Activity> = passes.into_iter().filter(occurs).collect();
    let chunks = chunks(charts);
    let shades = if chunks > 1 { chunks } else { 0 };
    let mut words: Vec<String> = Vec::new();
    for activity in &passes {
        words.push(match shown {
            Shown::LetterAndNumber => format!("{} {}", activity.letter, activity.name),
            _ => activity.name.to_string(),
        });
    }
    words.push("bubble".to_owned());
    for chunk in 0..shades {
        words.push(format!("chunk {chunk}"));
    }
    if shown != Shown::Nothing {
        words.push("number: micro-batch".to_owned());
    }
    let widths = words.iter().map(|words| 20.0 + 7.1 * words.len() as f64);
    let mut bottom = top;
    for (i, ((x, row), words)) in in_rows(widths, 3.5).into_iter().zip(&words).enumerate() {
        let y = top + ROW * row as f64;
        if let Some(&activity) = passes.get(i) {
            pass(page, activity, x..x + 15.0, y, shade(0, 1));
        } else if i == passes.len() {
            wait(page, x..x + 15.0, y);
        } else if words.starts_with("chunk") {
            let shade = shade(i - passes.len() - 1, chunks);
            pass(page, Activity::FORWARD, x..x + 8.0, y, shade);
            pass(page, Activity::BACKWARD, x + 8.0..x + 16.0, y, shade);
        }
        let start = if words.starts_with("number") { x } else { x + 20.0 };
        page.text((start, y + 14.0), Anchor::Start, words);
        bottom = y + ROW;
    }
    bottom
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(title: &str, slower: f64, chunks: usize) -> Chart {
        let bar = |activity, number, start: f64, end: f64| Bar {
            activity,
            chunk: number % chunks,
            number,
            start: slower * start,
            end: slower * end,
        };
        let first = vec![bar(Activity::FORWARD, 0, 0.0, 1.0), bar(Activity::BACKWARD, 0, 2.0, 4.0)];
        Chart {
            title: title.into(),
            ranks: vec![first, vec![bar(Activity::FORWARD, 1, 1.0, 2.0)]],
        }
    }

    #[test]
    fn a_page_has_a_bar_for_each_pass_and_hatches_for_each_wait() {
        let svg = gantt("two ranks", &[chart("", 1.0, 1)]);
        // Three passes; a wait on rank 0, and one before and one after rank 1's pass; three in the
        // legend.
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches("url(#bubble)").count()),
            (9, 4),
            "{svg}"
        );
        assert!(
            [">F0<", ">B0<", ">F1<", ">rank 1<", ">F forward<"]
                .iter()
                .all(|label| svg.contains(label)),
            "{svg}"
        );
        assert!(!svg.contains(">chunk") && !svg.contains("\n\n"), "{svg}");
    }

    #[test]
    fn charts_share_one_scale_and_chunks_have_their_shades() {
        let svg = gantt("two steps", &[chart("fast", 1.0, 2), chart("slow", 2.0, 2)]);
        // A forward pass takes an eighth of the picture, and twice as much where all is slower.
        let widths = [1.0, 2.0]
            .map(|units| format!("width=\"{:.1}\"", (WIDTH - GUTTER - 1.0) * units / 8.0 - 0.8));
        assert!(widths.iter().all(|width| svg.contains(width)), "{widths:?} {svg}");
        assert!(
            svg.contains("fill-opacity=\"0.75\"")
                && svg.contains("fill-opacity=\"0.25\"")
                && svg.contains(">chunk 1<")
        );
    }
}
