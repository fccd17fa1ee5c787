//! Which steps learn from which micro-batches.

use anyhow::Result;
use kit::show::svg::curve_colour;
use kit::show::{Look, Scene, columns, widest};
use labs::lab08::skipping::{Ranges, SkipPolicy};
use std::iter;

/// Four steps of four micro-batches, of which steps 2 and 3 are bad, in each way to skip: a box for
/// each micro-batch with the number of its step, an outline for a discarded one, and a band behind
/// the bad ones.
pub(super) fn picture() -> Result<String> {
    const ACCUMULATION: usize = 4;
    const HEAD: &str = "micro-batch";
    const WIDTH: usize = 3;
    let none = Ranges::default();
    let range = Ranges::parse(&[2, 3])?;
    let row = |(name, policy, ranges): (&'static str, SkipPolicy, &Ranges)| {
        let step = |step| {
            let plan = policy.plan(ranges, step, ACCUMULATION);
            let learned = if plan.train { ACCUMULATION } else { 0 };
            iter::repeat_n(None, plan.discard).chain(iter::repeat_n(Some(step), learned))
        };
        let steps: Vec<Option<usize>> = (1..=4).flat_map(step).collect();
        (name, steps)
    };
    let ways = [
        ("no skip", SkipPolicy::Count, &none),
        ("count", SkipPolicy::Count, &range),
        ("one-batch", SkipPolicy::OneBatch, &range),
    ];
    let rows = ways.map(row);
    let bad = ACCUMULATION + 1..=3 * ACCUMULATION;
    let names = 2 + widest(rows.iter().map(|row| &row.0)).max(columns(HEAD)) + 1;
    let place = |row: usize, n: usize| (row, names + WIDTH * n.saturating_sub(1), WIDTH);
    let mut scene = Scene::new(names, 27.0);
    let band = WIDTH * (bad.end() + 1).saturating_sub(*bad.start());
    scene.band(place(0, *bad.start()).1, band, "#d0503f");
    scene.words(0, 2, HEAD);
    scene.words(1, 2, "bad");
    let count = rows.iter().map(|row| row.1.len()).max();
    for n in 1..=count.unwrap_or(0) {
        scene.number(place(0, n), &n.to_string());
        if bad.contains(&n) {
            scene.number(place(1, n), "!");
        }
    }
    for (row, (name, steps)) in (2..).zip(&rows) {
        scene.words(row, 2, name);
        for (n, step) in (1..).zip(steps) {
            match step {
                Some(step) => {
                    let look = Look::Tinted(curve_colour(*step));
                    scene.boxed(place(row, n), "", look, &step.to_string());
                }
                None => {
                    scene.boxed(place(row, n), "", Look::Dashed("currentColor"), "");
                }
            }
        }
    }
    Ok(scene.svg(
        "Micro-batches of four steps: which step learns from each, in three ways to treat steps 2 and 3",
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_box_for_each_draw_and_a_band_for_the_bad_ones() {
        let svg = super::picture().unwrap();
        assert_eq!(svg.matches("<rect").count(), 16 + 16 + 18 + 1, "{svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 8 + 2, "{svg}");
        assert!(!svg.contains("\n\n"));
    }
}
