//! Ways to skip, side by side.

use super::{Counts, Job, Run};
use crate::show::{Screen, table};

/// A table of trainings: for each a name, its run, and what it drew.
pub fn compared(screen: &Screen, job: &Job, all: &[(&str, &Run, Counts)]) -> String {
    let accumulation = job.config.grad_accum;
    let after = job.poison.draws.end / accumulation + 1;
    let row = |(name, run, counts): &(&str, &Run, Counts)| {
        let peak = run.losses().into_iter().filter(|&(step, _)| step + accumulation > after).map(|(_, loss)| loss);
        let next = match counts.next {
            0 => "none".to_string(),
            first => format!("{first} to {}", first + accumulation - 1),
        };
        let peak = peak.fold(f64::NAN, f64::max);
        let figures = [counts.taken.to_string(), counts.bad.to_string(), format!("{peak:.2}"), next];
        [vec![name.to_string()], figures.to_vec(), vec![format!("{:.3}", run.val)]].concat()
    };
    let next = format!("micro-batches of step {after}");
    let header = ["way to skip", "steps taken", "bad micro-batches learned", "highest loss", &next, "val loss"];
    table(screen, &header, &all.iter().map(row).collect::<Vec<_>>())
}
