//! lab08-skip · A skipped step still draws its data
//!
//! Steps 2 and 3 have damaged text. So the run is started again with `--train-range-to-skip 2 3`: a pair of numbers for each
//! range, its first and its last step. Both ends are included, and steps count from 1.
//!
//! ```text
//!  4 micro-batches per step             step 1   step 2   step 3   step 4
//!    trains on, if nothing is skipped    1-4      5-8      9-12    13-16
//!      in the schedule at                 0        1        2        3
//!    trains on, with 2 3                 1-4       -        -      13-16
//!      in the schedule at                 0                          3
//!      skipped_steps afterwards           0        1        2        2
//! ```
//!
//! `iteration` is called once for each step. A run can be stopped between any two steps, and resumed from its counters: it
//! goes on as if it had not been stopped.

use shardlab::data::Batch;

/// A run's settings.
pub struct Run<'a> {
    /// The numbers behind `--train-range-to-skip`: first and last step of each range, then of the next.
    pub skip: &'a [usize],
    /// Micro-steps of gradient accumulation. Each draws one micro-batch.
    pub accumulation: usize,
    /// Sequences per step, over all ranks and micro-steps.
    pub samples: usize,
}

/// A run's progress. A checkpoint stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps so far, those that were skipped included.
    pub global_steps: usize,
    /// Steps that were skipped.
    pub skipped_steps: usize,
    /// Micro-batches that were drawn. A run that resumes draws on from there.
    pub micro_steps: usize,
    /// Sequences that were drawn, over all ranks.
    pub global_samples: usize,
    /// Steps of the learning-rate schedule. The next step has the learning rate of this position.
    pub schedule: usize,
}

/// One rank's data and model.
pub trait Trainer {
    /// Draws this rank's next micro-batch.
    fn draw(&mut self) -> Batch;
    /// Trains on the micro-batches of one step, with the learning rate of a position in the schedule.
    fn train(&mut self, batches: &[Batch], schedule: usize);
}

/// The run's next step, taken or skipped. Every rank calls it.
pub fn iteration(run: &Run, counters: &mut Counters, trainer: &mut dyn Trainer) {
    todo!(
        "{} steps are over, {:?} are to skip, and the next micro-batch has the hash {}",
        counters.global_steps,
        run.skip,
        trainer.draw().hash()
    )
}
