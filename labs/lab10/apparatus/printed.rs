//! One job on the screen: as the source prints it, and as DeepSpeed's JSON.

use super::benchmark::Measured;
use super::strategies::{Candidate, turns};
use anyhow::Result;
use kit::show::{Screen, complain};
use shardlab::launch;
use shardlab::tensor::Precision;

/// The source's lines for one job. Where ranks take turns, those with times are left out.
pub fn as_the_source_prints(
    screen: &Screen,
    strategy: &Candidate,
    measured: &Measured,
    price_per_hour: f64,
) {
    let turns = turns(strategy.ranks);
    screen.say(format!("\n{}", screen.wrap(&format!("Using topology: {}", measured.layout), 2)));
    // A line of the source is folded where the screen has no room for it, between values and not
    // within one.
    let say = |line: String| {
        let values: Vec<String> =
            line.split("   ").map(|value| value.replace(' ', "\u{a0}")).collect();
        let line = if values.len() > 1 { values.join("   ") } else { line };
        screen.say(screen.wrap(&line, 2));
    };
    if let Some(turns) = &turns {
        screen.say(format!("  not timed: {turns}"));
    }
    for [forward, step] in measured.runs.iter().filter(|_| turns.is_none()) {
        say(forward.line());
        say("--- Breakdown ---".to_string());
        say(forward.breakdown(price_per_hour));
        say(format!("training: {}", step.line()));
    }
    for line in measured.memory.lines() {
        say(line);
    }
    screen.say("  Cleared distributed env and caches.");
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
