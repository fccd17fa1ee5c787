//! Speed-up and efficiency: compares the speed of all ranks with one rank's (weak scaling: each
//! rank has its own batch).

use anyhow::Result;
use kit::show::{Screen, thousands};
use kit::{Journal, OtherWork, machine};
use shardlab::comm::Comm;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Training};
use std::time::{Duration, Instant};

/// The time limit for the steps of one rank alone. It takes at least [`FEWEST`] steps.
const PATIENCE: Duration = Duration::from_secs(1);
const FEWEST: usize = 4;
const MOST: usize = 30;

/// Prints the speed of the run in `journal` beside the speed of rank 0 alone. Where ranks took
/// turns, or other programs worked on their cores, there is no comparison: it would show those. For
/// the latter, rank 0 trains a model like it with the same batch per rank and without averaging,
/// while the other ranks wait. All ranks call it.
pub fn show(
    comm: &Comm,
    screen: &Screen,
    config: &Config,
    text: &[u32],
    journal: &Journal,
) -> Result<()> {
    let ranks = launch::ranks_here(config.ranks);
    let cores = launch::cores();
    if comm.rank() == 0 && comm.size() > 1 && !journal.records.is_empty() {
        let tokens = config.tokens_per_step() as f64;
        let seconds = journal.records.iter().map(|record| record.dt).collect();
        let together = tokens / undisturbed(seconds);
        let words = if let Some(turns) = machine::turns(ranks, cores) {
            format!("not compared with one rank: {turns}")
        } else if let Some(busy) = journal.other_work.remark(ranks) {
            not_compared(config.ranks, together, &busy)
        } else {
            let watch = OtherWork::watch();
            let alone = tokens / config.ranks as f64 / seconds_alone(config, text)?;
            match watch.remark(1) {
                Some(busy) => not_compared(config.ranks, together, &busy),
                None => in_words(config.ranks, together, alone),
            }
        };
        screen.say(screen.row("speed", &words));
    }
    Ok(comm.labelled("speed-up").barrier()?)
}

/// The row for a speed that other programs made.
fn not_compared(ranks: usize, together: f64, busy: &str) -> String {
    let together = thousands(together as u64);
    format!("{ranks} ranks: {together} tokens/s; not compared with one rank: {busy}")
}

/// The row for these speeds: tokens per second of `ranks` ranks together, and of one rank alone.
fn in_words(ranks: usize, together: f64, alone: f64) -> String {
    let speedup = together / alone;
    let [together, alone] = [together, alone].map(|tps| thousands(tps as u64));
    let efficiency = 100.0 * speedup / ranks as f64;
    if efficiency > 105.0 {
        return format!(
            "{ranks} ranks: {together} tokens/s; other programs ran: repeat to compare"
        );
    }
    format!(
        "{ranks} ranks: {together} tokens/s = {speedup:.2} x {alone} on one (efficiency {efficiency:.0}%)"
    )
}

/// Measures the seconds of a step on this rank alone.
fn seconds_alone(config: &Config, text: &[u32]) -> Result<f64> {
    let one = Config { ranks: 1, ..config.clone() };
    let mut alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
    let mut seconds = Vec::new();
    let begun = Instant::now();
    while seconds.len() < FEWEST || (begun.elapsed() < PATIENCE && seconds.len() < MOST) {
        let start = Instant::now();
        alone.step(text, seconds.len())?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(undisturbed(seconds))
}

/// The lower quartile of the steps' seconds. A median would also measure the machine's other
/// programs.
fn undisturbed(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efficiency_is_the_speed_up_per_rank() {
        let words = in_words(2, 52_800.0, 27_100.0);
        assert_eq!(words, "2 ranks: 52,800 tokens/s = 1.95 x 27,100 on one (efficiency 97%)");
        let disturbed = in_words(2, 1_028_335.0, 400_000.0);
        assert_eq!(disturbed, "2 ranks: 1,028,335 tokens/s; other programs ran: repeat to compare");
        assert_eq!(undisturbed(vec![9.0, 1.0, 3.0, 2.0]), 2.0);
    }
}
