//! What the gradients of a step should send.

use crate::flags::Args;
use anyhow::Result;
use kit::{Evaluator, Journal, report};
use shardlab::comm;
use shardlab::comm::algorithms::{Algorithm, Task};
use shardlab::parallel::zero::Zero;

/// What the gradients of a step should send, and how long that takes on a link.
pub fn expect(
    args: &Args,
    zero: &Zero,
    evaluator: &Evaluator,
    journal: &mut Journal,
) -> Result<()> {
    let comm = evaluator.comm;
    let buckets = zero.buckets();
    if let Some(algorithm) = args.all_reduce {
        let place = [comm.rank(), comm.size()];
        let bytes = evaluator.config.reduce.bytes();
        journal.expect(all_reduced_by(algorithm, &buckets, bytes, place)?);
    } else {
        journal.expect_on_link(args.run.comm.link, &buckets);
        let numel = zero.params().numel();
        journal.expect(report::all_reduced(numel, evaluator.config.reduce, comm.size()));
    }
    Ok(())
}

/// The bytes that `rank` sends when `ranks` ranks average buckets of these `elements` by an
/// algorithm: counted over its rounds, which lab01 draws.
fn all_reduced_by(
    algorithm: Algorithm,
    elements: &[usize],
    bytes: usize,
    [rank, ranks]: [usize; 2],
) -> comm::Result<(String, f64)> {
    let mut sent = 0;
    let mut rounds = 0;
    for &len in elements {
        for task in Task::of_all_reduce(algorithm, ranks, len, bytes)? {
            for round in task.rounds(rank) {
                rounds += 1;
                sent += round.send.map_or(0, |send| send.range.len() * bytes);
            }
        }
    }
    let words = format!("{} of {} rounds in {} buckets", algorithm.name(), rounds, elements.len());
    Ok((words, sent as f64))
}
