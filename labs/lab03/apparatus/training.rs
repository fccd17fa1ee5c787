//! The training, and what is watched and said meanwhile.

use super::broken::Drawn;
use crate::flags::Args;
use anyhow::Result;
use kit::{Evaluator, Journal, Symptoms, report};
use shardlab::comm;
use shardlab::comm::algorithms::{Algorithm, Task};
use shardlab::parallel::zero::Zero;
use shardlab::train::Training;

/// Takes the steps of `training`, and watches them.
pub fn train(
    args: &Args,
    training: &mut Training,
    evaluator: &Evaluator,
    journal: &mut Journal,
) -> Result<Symptoms> {
    let Evaluator { config, corpus, comm, .. } = *evaluator;
    expect(args, &training.zero, evaluator, journal)?;
    let mut symptoms = Symptoms::of(args.broken);
    training.whole(|gpt| evaluator.run(gpt, 0, journal))?;
    symptoms.look(comm, training.zero.params(), 0)?;

    for step in 0..config.steps {
        let before = comm.total_traffic();
        let mut drawn = Drawn::of(&mut symptoms, config, comm.rank());
        let taken = training.step_with(&corpus.train, step, &mut drawn)?;
        let sent = comm.total_traffic() - before;
        let step = step + 1;
        journal.step(step, &taken, sent)?;
        if evaluator.eval.due.after(step) {
            training.whole(|gpt| evaluator.run(gpt, step, journal))?;
        }
        symptoms.look(comm, training.zero.params(), step)?;
    }
    Ok(symptoms)
}

/// What the gradients of a step should send, and how long that takes on a link.
fn expect(args: &Args, zero: &Zero, evaluator: &Evaluator, journal: &mut Journal) -> Result<()> {
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
