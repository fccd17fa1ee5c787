//! lab08-skip · A skipped step still draws its data

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
    let step = counters.global_steps + 1;
    let is_in = |ends: &[usize]| ends[0] <= step && step <= ends[1];
    let skipped = run.skip.chunks(2).any(is_in);
    // A skipped step does everything that a step does, except learning.
    let batches: Vec<Batch> = (0..run.accumulation).map(|_| trainer.draw()).collect();
    if skipped {
        counters.skipped_steps += 1;
    } else {
        trainer.train(&batches, counters.schedule);
    }
    counters.schedule += 1;
    counters.global_steps += 1;
    counters.micro_steps += run.accumulation;
    counters.global_samples += run.samples;
}
