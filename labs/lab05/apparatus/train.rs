//! The training of a model that each tensor group shares, with ZeRO in each data group.

use super::Shared;
use anyhow::Result;
use kit::{Clock, Evaluator, Journal, Part, StepOutcome, Symptoms};
use shardlab::data::Batch;
use shardlab::mesh::Mesh;
use shardlab::model::Gpt;
use shardlab::parallel::Averaged;
use shardlab::train::{Config, clip_scale};

/// Trains, and evaluates before the first step and when it is due. Returns what the rank drew.
pub fn train(
    shared: &mut Shared,
    mesh: &Mesh,
    whole: &Gpt,
    evaluator: &Evaluator,
    journal: &mut Journal,
) -> Result<Symptoms> {
    let config = evaluator.config;
    let text = &evaluator.corpus.train;
    let sampler = config.sampler(mesh.at.data);
    let mut symptoms = Symptoms::default(); // tensor ranks draw the same
    shared.whole(whole, |whole| evaluator.run(whole, 0, journal))?;
    for step in 0..config.steps {
        let mut clock = Clock::start();
        let before = mesh.world().total_traffic();
        let draw = |micro| {
            let batch = sampler.batch(text, step, micro);
            symptoms.draw(batch.numbers());
            batch
        };
        let (outcome, averaged) = one_step(config, shared, step, draw, &mut clock)?;
        journal.step(outcome, &clock, mesh.world().total_traffic() - before, &averaged)?;
        if evaluator.eval.due.after(step + 1) {
            shared.whole(whole, |whole| evaluator.run(whole, step + 1, journal))?;
        }
    }
    Ok(symptoms)
}

// ANCHOR: train
/// One step. The layers communicate in both passes; ZeRO, in the data group, sees only this rank's
/// slices.
fn one_step(
    config: &Config,
    shared: &mut Shared,
    step: usize,
    mut draw: impl FnMut(usize) -> Batch,
    clock: &mut Clock,
) -> Result<(StepOutcome, Vec<Averaged>)> {
    let mut loss = 0.0;
    shared.zero.begin()?;
    for micro in 0..config.grad_accum {
        let batch = draw(micro); // the same on all tensor ranks of a replica
        clock.lap(Part::Data);
        let share = (shared.loss(config, step, &batch)? / config.grad_accum as f64)?;
        loss += f64::from(share.to_scalar::<f32>()?);
        clock.lap(Part::Forward);
        shared.zero.synchronise(micro + 1 == config.grad_accum);
        share.backward()?;
        clock.lap(Part::Backward);
    }
    let averaged = shared.zero.finish()?;
    clock.lap(Part::Backward);
    let lr = config.schedule.at(step);
    let grad_norm = shared.zero.norm()?; // of all slices on all ranks
    shared.zero.update(lr, clip_scale(grad_norm, config.clip)?)?;
    clock.lap(Part::Optimizer);
    Ok((StepOutcome { step: step + 1, loss, grad_norm, lr }, averaged))
}
// ANCHOR_END: train
