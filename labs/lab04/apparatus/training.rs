//! The training with one stage, and what is watched and said meanwhile.

use super::lab::Lab;
use crate::flags::Break;
use anyhow::Result;
use kit::{Clock, Evaluator, Journal, Part, StepOutcome, Steps, Symptoms};
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::model::{Gpt, Tiled};
use shardlab::parallel::Averaged;
use shardlab::parallel::zero::{Stage, Unit, Zero, ZeroConfig};
use shardlab::train::{Config, clip_scale, initial};

/// Trains with one stage.
pub fn train(
    lab: &Lab,
    comm: &Comm,
    stage: Stage,
    evaluator: Option<&Evaluator>,
    (journal, steps): (&mut Journal, &mut Steps),
) -> Result<(Gpt, Zero, Symptoms)> {
    let gpt =
        Gpt::build(&lab.config.shape, &Tiled(if stage == Stage::Three { lab.tiles } else { 1 }))?;
    let local_norm = lab.args.broken == Some(Break::LocalNorm);
    let zero = ZeroConfig { stage, local_norm, ..lab.zero.clone() };
    let mut zero =
        initial(&gpt, comm, zero, lab.config.seed, lab.args.train.model.init_from.as_deref())?;
    let sampler = lab.config.sampler(comm.rank());
    let mut symptoms = Symptoms::default();
    if let Some(evaluator) = evaluator {
        if stage == Stage::Three && comm.rank() == 0 {
            lab.screen.say(persistent(zero.units()));
        }
        zero.whole(|| evaluator.run(&gpt, 0, journal))?;
    }
    for step in 0..lab.config.steps {
        let mut clock = Clock::start();
        let before = comm.traffic();
        let draw = |micro| {
            let batch = sampler.batch(&lab.corpus.train, step, micro);
            symptoms.draw(batch.numbers());
            batch
        };
        let (outcome, averaged) = one_step(&lab.config, &gpt, &mut zero, step, draw, &mut clock)?;
        journal.step(outcome, &clock, comm.traffic() - before, &averaged)?;
        journal.gathered(step + 1, &zero.events());
        if evaluator.is_none() {
            progress(comm, steps, (&lab.stages, stage), step + 1);
        }
        if let Some(evaluator) = evaluator.filter(|evaluator| evaluator.eval.due.after(step + 1)) {
            // Every rank holds all parameters meanwhile.
            zero.whole(|| evaluator.run(&gpt, step + 1, journal))?;
        }
    }
    Ok((gpt, zero, symptoms))
}

// ANCHOR: train
/// One step, the same for every stage: `zero` decides where gradients go and where parameters come
/// from.
fn one_step(
    config: &Config,
    gpt: &Gpt,
    zero: &mut Zero,
    step: usize,
    mut draw: impl FnMut(usize) -> Batch,
    clock: &mut Clock,
) -> Result<(StepOutcome, Vec<Averaged>)> {
    let mut loss = 0.0;
    zero.begin()?; // from here on, a layer that asks for a parameter gets it
    for micro in 0..config.grad_accum {
        let batch = draw(micro);
        clock.lap(Part::Data);
        let share =
            (gpt.loss(&batch, &config.pass(step, &batch.sequences))? / config.grad_accum as f64)?;
        loss += f64::from(share.to_scalar::<f32>()?);
        clock.lap(Part::Forward);
        zero.synchronise(micro + 1 == config.grad_accum);
        share.backward()?; // gradients leave for their owners meanwhile
        clock.lap(Part::Backward);
    }
    let averaged = zero.finish()?; // each rank has the averaged gradients of its slice
    clock.lap(Part::Backward);
    let lr = config.schedule.at(step);
    let grad_norm = zero.norm()?; // the norm of all gradients
    zero.update(lr, clip_scale(grad_norm, config.clip)?)?; // each rank updates its slice
    clock.lap(Part::Optimizer);
    Ok((StepOutcome { step: step + 1, loss, grad_norm, lr }, averaged))
}
// ANCHOR_END: train

/// Shows on a terminal which stage trains, and how long all of them will take. `step` steps of this
/// stage are done.
fn progress(comm: &Comm, steps: &mut Steps, (stages, stage): (&[Stage], Stage), step: usize) {
    let each = steps.all / stages.len();
    let before = stages.iter().take_while(|&&one| one != stage).count();
    steps.show(comm, before * each + step, || {
        let (number, of) = (stage.number(), stages.len());
        format!("training {} of {of}, with stage {number}: step {step} of {each}", before + 1)
    });
}

/// What stage 3 keeps whole from a step's beginning to its end, in the words of DeepSpeed's log.
fn persistent(units: &[Unit]) -> String {
    let persistent = units.iter().filter(|unit| unit.persistent);
    let (numel, params) = persistent
        .fold((0, 0), |(numel, params), unit| (numel + unit.numel, params + unit.specs.len()));
    format!("Parameter Offload: Total persistent parameters: {numel} in {params} params")
}
