//! One job on the screen: as the source prints it, and as DeepSpeed's JSON.

use super::benchmark::Measured;
use super::strategies::{Candidate, turns};
use anyhow::Result;
use kit::neighbours::topology;
use kit::show::{Screen, complain};
use shardlab::launch;
use shardlab::tensor::Precision;

/// The source's lines for one job. Where ranks take turns, those with times are left out.
pub fn as_the_source_prints(screen: &Screen, strategy: &Candidate, measured: &Measured) {
    let say = |line: &str| screen.say(screen.wrap(line, 2));
    screen.say("");
    say(&format!("Using topology: {}", topology(&measured.layout)));
    match turns(strategy.ranks) {
        Some(turns) => say(&format!("not timed: {turns}")),
        None => {
            let [forward, step] = measured.runs[0];
            say(&forward.line());
            say("--- Breakdown ---");
            say(&forward.breakdown());
            say(&format!("training: {}", step.line()));
        }
    }
    measured.memory.lines().iter().for_each(|line| say(line));
    say("Cleared distributed env and caches.");
}

/// Prints DeepSpeed's JSON of steps of `batch` sequences, and on stderr what DeepSpeed does not
/// take from it.
///
/// # Errors
/// If the strategy does not divide its ranks.
pub fn print_deepspeed(
    screen: &Screen,
    strategy: &Candidate,
    batch: usize,
    dtype: Precision,
) -> Result<()> {
    let mut config = strategy.config.clone();
    let parts = config.mesh(strategy.ranks)?.sizes.data * config.accumulation;
    config.micro_batch = (batch / parts).max(1);
    let json = config.deepspeed(strategy.ranks, dtype)?;
    if launch::is_first_process() {
        screen.say(format!("{json:#}"));
        for caveat in config.caveats() {
            complain(&format!("note: {caveat}"));
        }
    }
    Ok(())
}
