//! The training with one stage, and what is watched and said meanwhile.

use super::lab::Lab;
use crate::flags::Break;
use anyhow::Result;
use kit::{Evaluator, Journal, Steps, Symptoms};
use shardlab::comm::Comm;
use shardlab::parallel::zero::{Stage, Unit};
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::{Setup, Training};

/// Trains with one stage. The step is the same for every stage: `Zero` decides where gradients go
/// and where parameters come from.
pub fn train(
    lab: &Lab,
    comm: &Comm,
    stage: Stage,
    evaluator: Option<&Evaluator>,
    (journal, steps): (&mut Journal, &mut Steps),
) -> Result<(Training, Symptoms)> {
    let config = &lab.config;
    let tiles = if stage == Stage::Three { lab.tiles } else { 1 };
    let strategy = Strategy { tiles, ..Strategy::data(config.ranks, stage) };
    let local_norm = lab.args.broken == Some(Break::LocalNorm);
    let mut training = Setup::new(config, &strategy)
        .zero(ZeroConfig { local_norm, ..lab.zero.clone() })
        .init_from(lab.args.train.model.init_from.as_deref())
        .begin(comm)?;
    let mut symptoms = Symptoms::default();
    if let Some(evaluator) = evaluator {
        if stage == Stage::Three && comm.rank() == 0 {
            lab.screen.say(persistent(training.zero.units()));
        }
        training.whole(|gpt| evaluator.run(gpt, 0, journal))?;
    }
    for step in 0..config.steps {
        let before = comm.total_traffic();
        let taken = training.step_with(&lab.corpus.train, step, &mut symptoms)?;
        let sent = comm.total_traffic() - before;
        let step = step + 1;
        journal.step(step, &taken, sent)?;
        journal.gathered(step, &training.zero.events());
        if evaluator.is_none() {
            progress(comm, steps, (&lab.stages, stage), step);
        }
        if let Some(evaluator) = evaluator.filter(|evaluator| evaluator.eval.due.after(step)) {
            // Every rank holds all parameters meanwhile.
            training.whole(|gpt| evaluator.run(gpt, step, journal))?;
        }
    }
    Ok((training, symptoms))
}

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
