//! Gantt charts of pipelines for pages.

use super::gantt::{Bar, Chart};
use super::svg::{PALETTE, WIDTH, area, picture, text};
use shardlab::plan::Activity;

/// Units on the left for the ranks' names.
const GUTTER: f64 = 48.0;

/// A row, and in it the height of a bar.
const ROW: f64 = 21.0;
const HEIGHT: f64 = 18.0;

/// Draws charts under each other, all to one scale, as an inline SVG. A bar has its letter and its micro-batch in it, as far
/// as there is room, and a chunk has its shade. Hatched is the time in which a rank waits: the bubble.
pub fn gantt_svg(title: &str, charts: &[Chart]) -> String {
    let end = charts.iter().map(Chart::end).fold(0.0, f64::max).max(1e-9);
    let x = |moment: f64| GUTTER + (WIDTH - GUTTER - 1.0) * moment / end;
    let mut body = String::from(
        "<defs><pattern id=\"bubble\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <path d=\"M0 0 V6\" stroke=\"currentColor\" stroke-opacity=\"0.35\" stroke-width=\"2\"/></pattern></defs>\n",
    );
    let hatched = |from: f64, to: f64, y: f64| area((from, y), (to - from, HEIGHT), "url(#bubble)");
    let mut y = 0.0;
    for chart in charts {
        if !chart.title.is_empty() {
            y += 15.0;
            body += &text(0.0, y, "start", &chart.title);
            y += 5.0;
        }
        let bars = || chart.ranks.iter().flatten();
        let chunks = 1 + bars().map(|bar| bar.chunk).max().unwrap_or(0);
        let digits = bars()
            .map(|bar| bar.number.to_string().len())
            .max()
            .unwrap_or(0);
        for (rank, bars) in chart.ranks.iter().enumerate() {
            body += &text(GUTTER - 6.0, y + 14.0, "end", &format!("rank {rank}"));
            let mut free = 0.0;
            for bar in bars {
                if bar.start > free {
                    body += &hatched(x(free), x(bar.start), y);
                }
                free = bar.end;
                body += &filled(bar, (x(bar.start), x(bar.end)), y, shade(bar, chunks));
                body += &label(
                    bar,
                    (x(bar.start) + x(bar.end)) / 2.0,
                    x(bar.end) - x(bar.start),
                    y,
                    digits,
                );
            }
            if free < chart.end() {
                body += &hatched(x(free), x(chart.end()), y);
            }
            y += ROW;
        }
        y += 5.0;
    }
    let (legend, bottom) = legend(charts, y, hatched);
    picture(title, bottom, &(body + &legend))
}

/// The first chunk is the darkest.
fn shade(bar: &Bar, chunks: usize) -> f64 {
    let shade = if chunks > 1 {
        0.75 - 0.5 * bar.chunk as f64 / (chunks - 1) as f64
    } else {
        0.5
    };
    if bar.activity == Activity::WEIGHTS {
        0.4 * shade
    } else {
        shade
    }
}

/// Both halves of a backward pass have one colour. The half of the weights has an outline.
fn filled(bar: &Bar, (from, to): (f64, f64), y: f64, shade: f64) -> String {
    let wide = to - from;
    let colour = PALETTE[if bar.activity == Activity::FORWARD {
        2
    } else {
        3
    }];
    let wide = wide - (0.1 * wide).min(0.8);
    let inside = area((from, y), (wide, HEIGHT), colour);
    let outline = format!(
        "<path d=\"M{:.1} {:.1} h{:.1} v{} h{:.1} Z\" fill=\"none\" stroke=\"{colour}\"/>",
        from + 0.5,
        y + 0.5,
        wide - 1.0,
        HEIGHT - 1.0,
        1.0 - wide
    );
    let outline = if bar.activity == Activity::WEIGHTS {
        outline
    } else {
        String::new()
    };
    format!(
        "<g fill-opacity=\"{shade:.2}\">{}{outline}</g>\n",
        inside.trim_end()
    )
}

fn label(bar: &Bar, middle: f64, wide: f64, y: f64, digits: usize) -> String {
    let long = 6.2 * digits as f64;
    let letter = if wide > long + 8.5 {
        bar.activity.letter.to_string()
    } else {
        String::new()
    };
    if wide < long {
        return String::new();
    }
    let label = text(
        middle,
        y + 13.0,
        "middle",
        &format!("{letter}{}", bar.number),
    );
    label.replacen("<text", "<text font-size=\"10\"", 1)
}

/// The activities that occur, each with its letter, the bubble, and the chunks' shades; and where the legend ends.
fn legend(
    charts: &[Chart],
    mut y: f64,
    hatched: impl Fn(f64, f64, f64) -> String,
) -> (String, f64) {
    let bars = || charts.iter().flat_map(|chart| chart.ranks.iter().flatten());
    let mut body = String::new();
    let mut x = 0.0;
    let mut add = |swatch: &dyn Fn(f64, f64) -> String, words: &str| {
        let wide = 20.0 + 7.1 * words.len() as f64;
        if x + wide > WIDTH {
            (x, y) = (0.0, y + ROW);
        }
        body += &swatch(x, y);
        body += &text(x + 20.0, y + 14.0, "start", words);
        x += wide + 3.5;
    };
    let bar = |activity, chunk| Bar {
        activity,
        chunk,
        number: 0,
        start: 0.0,
        end: 0.0,
    };
    for activity in [Activity::FORWARD, Activity::BACKWARD, Activity::WEIGHTS] {
        if bars().any(|bar| bar.activity == activity) {
            let bar = bar(activity, 0);
            add(
                &|x, y| filled(&bar, (x, x + 15.0), y, shade(&bar, 1)),
                &format!("{} {}", activity.letter, activity.name),
            );
        }
    }
    add(&|x, y| hatched(x, x + 15.0, y), "bubble");
    let chunks = 1 + bars().map(|bar| bar.chunk).max().unwrap_or(0);
    for chunk in (0..chunks).filter(|_| chunks > 1) {
        let [forward, backward] =
            [Activity::FORWARD, Activity::BACKWARD].map(|activity| bar(activity, chunk));
        let both = |x: f64, y| {
            let shade = shade(&forward, chunks);
            filled(&forward, (x, x + 8.0), y, shade)
                + &filled(&backward, (x + 8.0, x + 16.0), y, shade)
        };
        add(&both, &format!("chunk {chunk}"));
    }
    (body, y + ROW)
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
        let first = vec![
            bar(Activity::FORWARD, 0, 0.0, 1.0),
            bar(Activity::BACKWARD, 0, 2.0, 4.0),
        ];
        Chart {
            title: title.into(),
            ranks: vec![first, vec![bar(Activity::FORWARD, 1, 1.0, 2.0)]],
        }
    }

    #[test]
    fn a_page_has_a_bar_for_each_pass_and_hatches_for_each_wait() {
        let svg = gantt_svg("two ranks", &[chart("", 1.0, 1)]);
        // Three passes; a wait on rank 0, and one before and one after rank 1's pass; three in the legend.
        assert_eq!(
            (
                svg.matches("<rect").count(),
                svg.matches("url(#bubble)").count()
            ),
            (9, 4),
            "{svg}"
        );
        assert!(
            [">F0<", ">B0<", ">F1<", ">rank 1<", ">F forward<"]
                .iter()
                .all(|label| svg.contains(label)),
            "{svg}"
        );
        assert!(!svg.contains("chunk") && !svg.contains("\n\n"), "{svg}");
    }

    #[test]
    fn charts_share_one_scale_and_chunks_have_their_shades() {
        let svg = gantt_svg("two steps", &[chart("fast", 1.0, 2), chart("slow", 2.0, 2)]);
        // A forward pass takes an eighth of the picture, and twice as much where all is slower.
        let widths = [1.0, 2.0].map(|units| {
            format!(
                "width=\"{:.1}\"",
                (WIDTH - GUTTER - 1.0) * units / 8.0 - 0.8
            )
        });
        assert!(
            widths.iter().all(|width| svg.contains(width)),
            "{widths:?} {svg}"
        );
        assert!(
            svg.contains("fill-opacity=\"0.75\"")
                && svg.contains("fill-opacity=\"0.25\"")
                && svg.contains(">chunk 1<")
        );
    }
}
