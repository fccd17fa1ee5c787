//! The training, and what is watched and said meanwhile.

use crate::flags::Args;
use anyhow::Result;
use kit::{Clock, Evaluator, Journal, StepOutcome, Symptoms, report};
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
        let taken = training.step_with(&corpus.train, step, &mut symptoms)?;
        let sent = comm.total_traffic() - before;
        let step = step + 1;
        let outcome = StepOutcome::of(&taken, step);
        journal.step(outcome, &Clock::of(&taken), sent, &taken.averaged)?;
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
        journal.expect(report::all_reduced_by(algorithm, &buckets, place)?);
    } else {
        journal.expect_on_link(args.run.comm.link, &buckets);
        journal.expect(report::all_reduced(zero.params().numel(), comm.size()));
    }
    Ok(())
}
