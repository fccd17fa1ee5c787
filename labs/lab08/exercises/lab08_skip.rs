//! lab08-skip · Skip, stop, and go on on other ranks
//!
//! The lab counts the micro-batches of one rank. After a restart on other ranks that number means
//! nothing. Here every sequence of the run has a number, and a rank can read from any of them. So a
//! skipped step need not draw its data, as on the page: it reads nothing. All others train on what
//! they would have had without the skip, also after a restart on other ranks.
//!
//! Sequences are numbered in the order of the steps. Of a step's sequences rank 0 has the first,
//! rank 1 the next, and so on, and a rank's micro-batches follow each other.
//!
//! ```text
//! to skip: 2 2           2 ranks, each with 2           then 3 ranks, each with 1
//!                        micro-batches of 3             micro-batch of 2
//!                        step 1         step 2          step 3        step 4
//!   rank 0 reads from     0   3          none              24            30
//!   rank 1 reads from     6   9          none              26            32
//!   rank 2 reads from                                      28            34
//!   in the schedule at     0             (1)                2             3
//! ```
//!
//! `iteration` is called once for each step. `--train-range-to-skip` has a pair of numbers for each
//! range, its first and its last step, in any order of the ranges. Both ends are included, and
//! steps count from 1. A run can be stopped between any two steps, and resumed from its counters
//! with other settings.

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
    todo!(
        "rank {} of {}: {} steps are over, {:?} are to skip, and this text begins with {:?}",
        run.rank,
        run.ranks,
        counters.global_steps,
        run.skip,
        trainer.read(0).starts
    )
}
