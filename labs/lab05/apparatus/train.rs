//! The training of a model that each tensor group shares, with ZeRO in each data group.

use anyhow::Result;
use kit::{Evaluator, Journal, Symptoms};
use shardlab::train::Training;

/// Trains, and evaluates before the first step and when it is due. Returns what the rank drew.
pub fn train(
    training: &mut Training,
    evaluator: &Evaluator,
    journal: &mut Journal,
) -> Result<Symptoms> {
    let Evaluator { config, corpus, comm, .. } = *evaluator;
    let mut symptoms = Symptoms::default(); // tensor ranks draw the same
    training.whole(|whole| evaluator.run(whole, 0, journal))?;
    for step in 0..config.steps {
        let before = comm.total_traffic();
        let taken = training.step_with(&corpus.train, step, &mut symptoms)?;
        let sent = comm.total_traffic() - before;
        let step = step + 1;
        journal.step(step, &taken, sent)?;
        if evaluator.eval.due.after(step) {
            training.whole(|whole| evaluator.run(whole, step, journal))?;
        }
    }
    Ok(symptoms)
}
