//! Collectives that go wrong: the last rank does not do what the other ranks do.

use anyhow::Result;
use clap::ValueEnum;
use kit::Checks;
use kit::show::{Screen, explained, seconds};
use shardlab::comm::{Comm, Reduce};
use std::time::Duration;

/// The last rank's mistake.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Break {
    /// The last rank leaves out the losses' all-reduce and goes on to the barrier
    MissingRank,
    /// The last rank brings 3 losses where the others bring 4
    WrongLength,
    /// The last rank asks for the largest loss where the others ask for the sum
    WrongOp,
    /// The last rank sums up the losses before the gradients; both are 4 numbers of one type
    WrongOrder,
    /// The last rank returns before the losses are summed up
    EarlyExit,
    /// The last rank computes for a long time before it enters the barrier
    SlowRank,
}

/// Breaks the end of a training step. A slow rank takes `slow` longer, and is checked. Every other
/// mistake ends in an error here.
pub fn run(
    comm: &Comm,
    screen: &Screen,
    broken: Break,
    slow: Duration,
    checks: &mut Checks,
) -> Result<()> {
    let odd = comm.size() - 1;
    let waited = step(comm, broken, slow)?;
    if comm.rank() != 0 {
        return Ok(());
    }
    screen.say(format!("{}\n", show(screen, &waited)));
    let named = slowest(&waited) == odd;
    checks.check(
        named,
        "the slow rank is the one that all waited for",
        "",
        "the ranks waited for a different rank",
    );
    Ok(())
}

/// The end of a training step: all ranks add up gradients, add up losses, and meet in a barrier.
/// `broken` is what the last rank does instead. Returns the seconds that each rank waited in the
/// barrier, where all wait for a slow rank.
fn step(comm: &Comm, broken: Break, slow: Duration) -> Result<Vec<f64>> {
    let odd = comm.rank() + 1 == comm.size();
    let mut gradients = [1f32; 4];
    let mut losses = [2f32; 4];
    let reduce_gradients = |gradients: &mut [f32]| comm.all_reduce(gradients, Reduce::Sum);
    let reduce_losses = |losses: &mut [f32], op| comm.all_reduce(losses, op);

    match broken {
        Break::WrongOrder if odd => reduce_losses(&mut losses, Reduce::Sum)?,
        _ => reduce_gradients(&mut gradients)?,
    }
    match broken {
        Break::MissingRank if odd => {}
        Break::WrongLength if odd => reduce_losses(&mut losses[..3], Reduce::Sum)?,
        Break::WrongOp if odd => reduce_losses(&mut losses, Reduce::Max)?,
        Break::WrongOrder if odd => reduce_gradients(&mut gradients)?,
        Break::EarlyExit if odd => return Ok(Vec::new()),
        _ => reduce_losses(&mut losses, Reduce::Sum)?,
    }
    if broken == Break::SlowRank && odd {
        std::thread::sleep(slow);
    }
    let before = comm.traffic().seconds;
    comm.barrier()?;
    Ok(comm.gathered(&[comm.traffic().seconds - before])?)
}

/// A table of how long each rank waited. All others waited for the rank that waited least.
fn show(screen: &Screen, waited: &[f64]) -> String {
    let row = |(rank, &time): (usize, &f64)| vec![rank.to_string(), seconds(time)];
    let most = waited.iter().fold(0f64, |most, &time| most.max(time));
    let words = format!(
        "Rank {} waited least: the others waited {} for it.",
        slowest(waited),
        seconds(most)
    );
    let rows = waited.iter().enumerate().map(row);
    explained(screen, &["rank", "waited in the barrier"], rows, &words)
}

/// The rank that waited least.
fn slowest(waited: &[f64]) -> usize {
    let least = waited.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    least.map_or(0, |(rank, _)| rank)
}
