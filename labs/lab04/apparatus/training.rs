//! The training with one stage, and what is said meanwhile.

use super::lab::Lab;
use crate::flags::Break;
use anyhow::Result;
use kit::{Journal, Steps};
use shardlab::comm::Comm;
use shardlab::parallel::zero::{Mistake, Stage, Unit};
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::{Setup, Training};

/// Begins a training with one stage. The step is the same for every stage: `Zero` decides where
/// gradients go and where parameters come from.
pub fn begin(lab: &Lab, comm: &Comm, stage: Stage) -> Result<Training> {
    let config = &lab.config;
    let tiles = if stage == Stage::Three { lab.tiles } else { 1 };
    let strategy = Strategy { tiles, ..Strategy::data(config.ranks, stage) };
    let mistake = (lab.args.broken == Some(Break::LocalNorm)).then_some(Mistake::LocalNorm);
    Setup::new(config, &strategy)
        .zero(ZeroConfig { mistake, ..lab.zero.clone() })
        .init_from(lab.args.train.model.init_from.as_deref())
        .begin(comm)
}

/// Takes the steps of a training with one of several stages. `steps` are those of all of them.
pub fn take(
    lab: &Lab,
    comm: &Comm,
    stage: Stage,
    training: &mut Training,
    (journal, steps): (&mut Journal, &mut Steps),
) -> Result<()> {
    for step in 0..lab.config.steps {
        let before = comm.total_traffic();
        let taken = training.step(&lab.corpus.train, step)?;
        journal.step(step + 1, &taken, comm.total_traffic() - before)?;
        progress(comm, steps, (&lab.stages, stage), step + 1);
    }
    Ok(())
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
pub fn persistent(units: &[Unit]) -> String {
    let persistent = units.iter().filter(|unit| unit.persistent);
    let (numel, params) = persistent
        .fold((0, 0), |(numel, params), unit| (numel + unit.numel, params + unit.specs.len()));
    format!("Parameter Offload: Total persistent parameters: {numel} in {params} params")
}
