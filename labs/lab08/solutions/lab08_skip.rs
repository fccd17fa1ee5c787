//! lab08-skip · Skip, stop, and go on on other ranks

use shardlab::data::Batch;

/// A run's settings. A resumed run may have others.
pub struct Run<'a> {
    /// The numbers after `--train-range-to-skip`: first and last step of each range, then of the
    /// next.
    pub skip: &'a [usize],
    /// This rank, and how many ranks share a step's sequences.
    pub rank: usize,
    pub ranks: usize,
    /// Micro-batches of a rank in one step.
    pub accumulation: usize,
    /// Sequences of a micro-batch.
    pub batch: usize,
}

/// A run's progress, the same on every rank. A checkpoint stores it, and nothing else of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps so far, those that were skipped included.
    pub global_steps: usize,
    /// Steps that were skipped.
    pub skipped_steps: usize,
    /// Sequences that the run has passed, over all ranks: the number of the next one.
    pub global_samples: usize,
    /// Steps of the learning-rate schedule: as many as `global_steps`, unless the run has begun a
    /// new schedule. The next step has the learning rate of this position.
    pub schedule: usize,
}

/// One rank's data and model.
pub trait Trainer {
    /// Reads a micro-batch, from sequence number `first` on.
    fn read(&mut self, first: usize) -> Batch;
    /// Trains on this rank's micro-batches of one step, with the learning rate of a position in the
    /// schedule.
    fn train(&mut self, batches: &[Batch], schedule: usize);
}

/// The run's next step, taken or skipped. Every rank calls it.
pub fn iteration(run: &Run, counters: &mut Counters, trainer: &mut dyn Trainer) {
    let step = counters.global_steps + 1;
    let is_in = |ends: &[usize]| ends[0] <= step && step <= ends[1];
    let of_rank = run.accumulation * run.batch;
    if run.skip.chunks(2).any(is_in) {
        counters.skipped_steps += 1;
    } else {
        let first = counters.global_samples + run.rank * of_rank;
        let read = |micro| trainer.read(first + micro * run.batch);
        let batches: Vec<Batch> = (0..run.accumulation).map(read).collect();
        trainer.train(&batches, counters.schedule);
    }
    // What was not read is passed, too.
    counters.schedule += 1;
    counters.global_steps += 1;
    counters.global_samples += run.ranks * of_rank;
}
