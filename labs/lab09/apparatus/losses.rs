//! The losses after the save, of all jobs.

use super::{Resumed, Run};
use kit::show::{Screen, significant, table};
use shardlab::parallel::Strategy;
use std::ops::RangeInclusive;

/// The losses of these `steps`, beside those of the run that nothing interrupted, of job `from`.
pub fn losses(
    screen: &Screen,
    steps: RangeInclusive<usize>,
    from: &Strategy,
    first: &Run,
    resumed: &[Resumed],
) -> String {
    let ends = |run: &Run| match (run.losses.first(), run.losses.last()) {
        (Some(first), Some(last)) => [format!("{first:.6}"), format!("{last:.6}")],
        _ => [String::new(), String::new()],
    };
    let undisturbed = format!("{}, runs on", from);
    let mut rows =
        vec![[&[undisturbed, String::new()][..], &ends(first), &[String::new()]].concat()];
    for Resumed { job, run, same } in resumed {
        let state = if *same { "bitwise" } else { "differ" };
        let state = format!("{state} {}", screen.verdict(*same));
        let difference = if run.has_bits_of(first) {
            "0: the same bits".to_string()
        } else {
            significant(run.difference(first), 2)
        };
        rows.push([&[job.to_string(), state][..], &ends(run), &[difference]].concat());
    }
    let losses = [steps.start(), steps.end()].map(|step| format!("loss of\nstep {step}"));
    let heads = [
        "job\n",
        "parameters\nand moments",
        &losses[0],
        &losses[1],
        "largest difference\nof a loss",
    ];
    let why = "The same ranks add in the same order: a loss keeps its bits. Other ranks add in a different \
               order, and the last digits can differ.";
    format!("\n{}\n{}\n", table(screen, &heads, &rows), screen.wrap(why, 2))
}
