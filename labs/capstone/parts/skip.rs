//! `lab08-skip`: a step is taken or skipped, and everything is counted.

use serde::{Deserialize, Serialize};
use shardlab::data::Batch;

/// A run's settings.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// First and last step of each range to skip, then of the next. Steps count from 1.
    pub skip: &'a [usize],
    /// This rank among those that divide the data, and how many these are.
    pub rank: usize,
    pub ranks: usize,
    /// Micro-batches that a rank reads per step.
    pub accumulation: usize,
    /// Sequences of a micro-batch.
    pub batch: usize,
}

/// A run's progress. A checkpoint stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Steps so far, those that were skipped included.
    pub global_steps: usize,
    pub skipped_steps: usize,
    /// The number of the run's next sequence: of so many, on all ranks, each was learned or left
    /// out.
    pub global_samples: usize,
    /// The next step has the learning rate of this position.
    pub schedule: usize,
}

/// One rank's data and model.
pub trait Trainer {
    /// Reads a micro-batch, from sequence number `first` on.
    fn read(&mut self, first: usize) -> Batch;
    /// Trains on the micro-batches of one step, with the learning rate of a position in the
    /// schedule.
    fn train(&mut self, batches: &[Batch], schedule: usize);
}

pub type Iteration = fn(&Run, &mut Counters, &mut dyn Trainer);

pub fn library(run: &Run, counters: &mut Counters, trainer: &mut dyn Trainer) {
    let step = counters.global_steps + 1;
    let skipped = run.skip.chunks(2).any(|ends| ends[0] <= step && step <= ends[1]);
    let of_rank = run.accumulation * run.batch;
    if skipped {
        counters.skipped_steps += 1;
    } else {
        let first = counters.global_samples + run.rank * of_rank;
        let read = |micro| trainer.read(first + micro * run.batch);
        let batches: Vec<Batch> = (0..run.accumulation).map(read).collect();
        trainer.train(&batches, counters.schedule);
    }
    counters.schedule += 1;
    counters.global_steps += 1;
    counters.global_samples += run.ranks * of_rank;
}

/// No step is skipped.
pub fn without(run: &Run, counters: &mut Counters, trainer: &mut dyn Trainer) {
    library(&Run { skip: &[], ..*run }, counters, trainer);
}
