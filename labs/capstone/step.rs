//! One step of either life: the part `skip` decides, and the rank reads and trains.

use crate::parts::Part;
use crate::parts::skip::{Counters, Iteration, Run, Trainer};
use crate::poison::Data;
use anyhow::{Result, ensure};
use serde::{Deserialize, Deserializer, Serialize};
use shardlab::data::Batch;
use std::time::Instant;

/// A step that is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Counted from 1.
    pub step: usize,
    /// None: the step was skipped.
    pub trained: Option<Trained>,
    pub seconds: f64,
}

/// What a step has computed: the same numbers on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    #[serde(deserialize_with = "or_nan")]
    pub loss: f64,
    /// The gradients' norm; None if they overflowed and nothing was updated.
    pub norm: Option<f64>,
    #[serde(deserialize_with = "or_nan")]
    pub lr: f64,
    /// The loss scale of this step.
    #[serde(deserialize_with = "or_nan")]
    pub scale: f64,
}

/// JSON has no number that is not finite, and writes `null`.
pub fn or_nan<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Trains a rank on one step's micro-batches, with the learning rate of a position in the schedule.
pub type Train<'a> = &'a mut dyn FnMut(&[Batch], usize) -> Result<Trained>;

/// Takes the next step. All ranks call it.
pub fn next(
    skip: Iteration,
    run: &Run,
    counters: &mut Counters,
    data: &Data,
    train: Train,
) -> Result<Step> {
    let start = Instant::now();
    let step = counters.global_steps + 1;
    let mut hands = Hands { data, train, trained: None };
    skip(run, counters, &mut hands);
    let trained = hands.trained.transpose()?;
    ensure!(
        counters.global_steps == step,
        "{} counts {} steps after step {step}",
        Part::Skip.exercise(),
        counters.global_steps
    );
    Ok(Step { step, trained, seconds: start.elapsed().as_secs_f64() })
}

/// What the part `skip` sees of a rank. It has no way to return an error, so one waits here.
struct Hands<'a> {
    data: &'a Data<'a>,
    train: Train<'a>,
    trained: Option<Result<Trained>>,
}

impl Trainer for Hands<'_> {
    fn read(&mut self, first: usize) -> Batch {
        self.data.batch(first)
    }

    fn train(&mut self, batches: &[Batch], schedule: usize) {
        self.trained = Some((self.train)(batches, schedule));
    }
}
