//! Activations over time: how many micro-batches' each rank of a pipeline keeps.

use crate::draw::{Anchor, Ink, Sketch, Stroke};
use anyhow::Result;
use kit::show::{Activity, Bar};
use labs::lab06::Predicted;
use shardlab::parallel::pipeline::{Pipeline, Schedule};

const PIPELINE: Pipeline = Pipeline { ranks: 4, chunks: 1, micro_batches: 8 };

/// The moments at which a rank keeps one micro-batch's activations more or fewer, and how many it
/// keeps from then on: a forward pass adds them when it begins, and a backward pass frees them when
/// it ends, which makes room for what begins then.
fn kept(bars: &[Bar]) -> Vec<(f64, usize)> {
    let mut changes: Vec<(f64, isize)> = bars
        .iter()
        .map(|bar| match bar.activity {
            Activity::FORWARD => (bar.start, 1),
            _ => (bar.end, -1),
        })
        .collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut now = 0;
    let mut all = vec![(0.0, 0)];
    for (moment, change) in changes {
        now += change;
        if let Some(last) = all.last_mut()
            && last.0 == moment
        {
            last.1 = now as usize;
        } else {
            all.push((moment, now as usize));
        }
    }
    all
}

/// GPipe and 1F1B, simulated: a backward pass takes twice a forward pass.
fn schedules() -> Result<[(&'static str, Predicted); 2]> {
    let of = |schedule| Predicted::paced(schedule, PIPELINE, 1.0);
    Ok([("GPipe", of(Schedule::GPipe)?), ("1F1B", of(Schedule::OneForwardOneBackward)?)])
}

/// Activations over one step.
pub(super) fn picture() -> Result<String> {
    const NAMES: f64 = 50.0;
    const GAP: f64 = 14.0;
    const ROW: f64 = 64.0;
    const EACH: f64 = 5.0;
    const TOP: f64 = 22.0;
    let wide = (480.0 - NAMES - GAP) / 2.0;
    let mut sketch = Sketch::default();
    for (panel, (name, step)) in schedules()?.iter().enumerate() {
        let left = NAMES + (wide + GAP) * panel as f64;
        sketch.words((left + wide / 2.0, 13.0), Anchor::Middle, name);
        let x = |moment: f64| left + wide * moment / step.simulated.makespan;
        for (rank, bars) in step.bars.iter().enumerate() {
            let base = TOP + ROW * (rank + 1) as f64 - 12.0;
            if panel == 0 {
                sketch.words((0.0, base - 14.0), Anchor::Start, format!("rank {rank}"));
            }
            let mut points = Vec::new();
            let mut before = 0;
            for (moment, now) in kept(bars) {
                points.push((x(moment), base - EACH * before as f64));
                points.push((x(moment), base - EACH * now as f64));
                before = now;
            }
            sketch.area(&points, base, Ink::Rank(rank));
            let peak = format!("peak {}", step.simulated.peaks[rank]);
            sketch.words((left + wide, base - 32.0), Anchor::End, peak);
            sketch.line((left, base), (left + wide, base), Ink::Page, Stroke::Thin);
        }
    }
    let bottom = TOP + ROW * PIPELINE.ranks as f64 + 6.0;
    sketch.words((NAMES, bottom), Anchor::Start, "right: time, one step; up: micro-batches kept");
    let title = "Micro-batches whose activations a rank keeps, over one step of 4 ranks and 8 micro-batches";
    Ok(sketch.svg(title, bottom + 8.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The curves' highest points are the simulator's peaks, and at the end nothing is left.
    #[test]
    fn curves_reach_the_peaks() {
        for (name, step) in schedules().unwrap() {
            for (bars, &peak) in step.bars.iter().zip(&step.simulated.peaks) {
                let kept = kept(bars);
                assert_eq!(kept.iter().map(|one| one.1).max(), Some(peak), "{name}");
                assert_eq!(kept.last().map(|one| one.1), Some(0), "{name}");
            }
        }
    }
}
