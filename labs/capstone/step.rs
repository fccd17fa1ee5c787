//! One step of either life: the part `skip` decides, and the rank reads and trains.

use crate::meter::{self, AllUsed, Meter};
use crate::parts::Part;
use crate::parts::skip::{Counters, Iteration, Run, Trainer};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use shardlab::comm::Comm;
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
    /// What the parts have used, over all ranks.
    pub used: AllUsed,
}

/// What a step has computed: the same numbers on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    #[serde(with = "word")]
    pub loss: f64,
    /// The gradients' norm; None if they overflowed and nothing was updated.
    pub norm: Option<f64>,
    #[serde(with = "word")]
    pub lr: f64,
    /// The loss scale of this step.
    #[serde(with = "word")]
    pub scale: f64,
}

/// A number that may be NaN or infinite: JSON has no such numbers, so it is a word then.
pub mod word {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        match number.is_finite() {
            true => to.serialize_f64(*number),
            false => to.serialize_str(&number.to_string()),
        }
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Word(String),
        }
        match Either::deserialize(from)? {
            Either::Number(number) => Ok(number),
            Either::Word(word) => word.parse().map_err(D::Error::custom),
        }
    }
}

/// One rank of either life.
pub trait Rank {
    /// Reads the micro-batch that begins with sequence number `first` of the run.
    fn read(&mut self, first: usize) -> Result<Batch>;
    /// Trains on one step's micro-batches.
    fn train(&mut self, batches: &[Batch], schedule: usize) -> Result<Trained>;
}

/// Takes the next step. All ranks call it.
pub fn next<R: Rank>(
    skip: Iteration,
    run: &Run,
    counters: &mut Counters,
    (comm, meter): (&Comm, &Meter),
    rank: &mut R,
) -> Result<Step> {
    let start = Instant::now();
    let step = counters.global_steps + 1;
    let mut hands = Hands { rank, meter, trained: None, failed: None };
    meter.part(Part::Skip, || skip(run, counters, &mut hands));
    let trained = hands.trained;
    if let Some(error) = hands.failed {
        return Err(error);
    }
    ensure!(
        counters.global_steps == step,
        "{} counts {} steps after step {step}",
        Part::Skip.exercise(),
        counters.global_steps
    );
    Ok(Step {
        step,
        trained,
        seconds: start.elapsed().as_secs_f64(),
        used: meter::of_all(comm, &meter.take())?,
    })
}

/// What the part `skip` sees of a rank. It has no way to return an error, so the first one waits
/// here.
struct Hands<'a, R> {
    rank: &'a mut R,
    meter: &'a Meter,
    trained: Option<Trained>,
    failed: Option<anyhow::Error>,
}

impl<R: Rank> Trainer for Hands<'_, R> {
    fn read(&mut self, first: usize) -> Batch {
        let read = self.meter.engine(|| self.rank.read(first));
        read.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            Batch::concat(&[])
        })
    }

    fn train(&mut self, batches: &[Batch], schedule: usize) {
        if self.failed.is_some() {
            return;
        }
        match self.meter.engine(|| self.rank.train(batches, schedule)) {
            Ok(trained) => self.trained = Some(trained),
            Err(error) => self.failed = Some(error),
        }
    }
}
