//! Ways to skip, side by side.

use super::{Counts, Job, Run};
use crate::skipping::Ranges;
use kit::show::{Plot, Screen, Series, table};

/// A table of trainings that skip `ranges`: for each a name, its run, and what it drew.
pub fn compared(job: &Job, ranges: &Ranges, all: &[(&str, &Run, Counts)]) -> String {
    let accumulation = job.config.grad_accum;
    let from = ranges.ends().next().map_or(1, |range| range.0);
    let after = ranges.after();
    let row = |(name, run, counts): &(&str, &Run, Counts)| {
        let peak = run.losses().into_iter().filter(|&(step, _)| step >= from).map(|(_, loss)| loss);
        let next = match counts.next {
            0 => "none".to_string(),
            first => format!("{first} to {}", first + accumulation - 1),
        };
        let peak = peak.fold(f64::NAN, f64::max);
        let figures =
            [counts.taken.to_string(), counts.bad.to_string(), format!("{peak:.2}"), next];
        [vec![name.to_string()], figures.to_vec(), vec![format!("{:.3}", run.val)]].concat()
    };
    let peak = format!("highest loss\nfrom step {from}");
    let next = format!("step {after} learns\nmicro-batches");
    let header = [
        "run",
        "steps\ntaken",
        "learns bad\nmicro-batches",
        &peak,
        &next,
        "loss on\nvalidation",
    ];
    table(&job.screen, &header, all.iter().map(row))
}

/// Both curves in one plot. The second begins where the run was resumed.
pub fn overlaid(screen: &Screen, damaged: &Run, skipped: &Run, from: usize) -> String {
    let points = |run: &Run, from: usize| {
        let losses = run.losses().into_iter().filter(move |&(step, _)| step > from);
        losses.map(|(step, loss)| (step as f64, loss))
    };
    let plot =
        Plot::new("loss", "step").series(Series::line("with bad batches", points(damaged, 0)));
    plot.series(Series::dots("resumed, skipping them", points(skipped, from)))
        .height(7)
        .render(screen)
}
