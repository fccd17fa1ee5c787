//! The counters of a run, by DeepSpeed's names. A checkpoint stores them.

use serde::{Deserialize, Serialize};
use shardlab::train::Config;

/// The extent of one step, over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSize {
    /// Micro-steps of gradient accumulation.
    pub accumulation: usize,
    /// Sequences, over all ranks and micro-steps.
    pub samples: usize,
}

impl StepSize {
    /// The extent of a run's steps.
    pub fn of(config: &Config) -> StepSize {
        StepSize {
            accumulation: config.grad_accum,
            samples: config.samples_per_step(),
        }
    }
}

/// A run's progress. All ranks have the same counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Steps so far, those that were skipped or refused included.
    pub global_steps: usize,
    /// Steps in which the weights did not change.
    pub skipped_steps: usize,
    pub micro_steps: usize,
    pub global_samples: usize,
    /// Steps of the learning-rate schedule so far.
    pub schedule: usize,
    /// Micro-batches that each rank has drawn: the sampler's position.
    pub drawn: usize,
}

impl Counters {
    /// The number of the next step, counted from 1.
    pub fn next_step(&self) -> usize {
        self.global_steps + 1
    }

    /// Counts a draw. Returns its number, counted from 0, for
    /// [`Sampler::nth`](shardlab::data::Sampler::nth).
    pub fn draw(&mut self) -> usize {
        self.drawn += 1;
        self.drawn - 1
    }

    /// Counts a step that was taken.
    pub fn taken(&mut self, size: StepSize) {
        self.schedule += 1;
        self.pass(size);
    }

    /// Counts a step that was skipped because of its data. The learning rate follows the data, as
    /// if the step had been taken.
    pub fn skipped(&mut self, size: StepSize) {
        self.skipped_steps += 1;
        self.taken(size);
    }

    /// Counts a step that was refused because gradients overflowed. The schedule waits: an overflow
    /// says nothing about the data, and a warm-up should not end before training begins.
    pub fn refused(&mut self, size: StepSize) {
        self.skipped_steps += 1;
        self.pass(size);
    }

    fn pass(&mut self, size: StepSize) {
        self.global_steps += 1;
        self.micro_steps += size.accumulation;
        self.global_samples += size.samples;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipping::{Ranges, SkipPolicy};

    const SIZE: StepSize = StepSize { accumulation: 4, samples: 48 };

    /// Runs four steps. Returns the counters, and the micro-batches that each step trained on.
    fn run(policy: SkipPolicy, ranges: &[i64]) -> (Counters, Vec<(usize, Vec<usize>)>) {
        let ranges = Ranges::parse(ranges).unwrap();
        let mut counters = Counters::default();
        let mut trained = Vec::new();
        while counters.global_steps < 4 {
            let plan = policy.plan(&ranges, counters.next_step(), SIZE.accumulation);
            for _ in 0..plan.discard {
                counters.draw();
            }
            if plan.train {
                trained.push((
                    counters.next_step(),
                    (0..SIZE.accumulation).map(|_| counters.draw()).collect(),
                ));
                counters.taken(SIZE);
            } else {
                counters.skipped(SIZE);
            }
        }
        (counters, trained)
    }

    #[test]
    fn a_skipped_step_counts_in_everything() {
        let (counters, trained) = run(SkipPolicy::Count, &[2, 3]);
        assert_eq!(trained, [(1, vec![0, 1, 2, 3]), (4, vec![12, 13, 14, 15])]);
        let expected = Counters {
            global_steps: 4,
            skipped_steps: 2,
            micro_steps: 16,
            global_samples: 192,
            schedule: 4,
            drawn: 16,
        };
        assert_eq!(counters, expected);
        // Apart from the skipped steps, the counters are those of a run that skips none.
        assert_eq!(run(SkipPolicy::Count, &[]).0, Counters { skipped_steps: 0, ..expected });
    }

    /// Step 2's data is micro-batches 4 to 7. The policy discards only one of them, trains on the
    /// other three, and every later batch comes too early.
    #[test]
    fn one_batch_per_skipped_step_is_too_little_with_accumulation() {
        let (counters, trained) = run(SkipPolicy::OneBatch, &[2, 2]);
        let batches: Vec<_> = trained.iter().map(|(_, drawn)| drawn[0]..=drawn[3]).collect();
        assert_eq!(batches, [0..=3, 5..=8, 9..=12, 13..=16]);
        assert_eq!((counters.global_steps, counters.skipped_steps, counters.schedule), (4, 0, 4));
    }

    #[test]
    fn a_refused_step_leaves_the_schedule() {
        let mut counters = Counters::default();
        counters.refused(SIZE);
        counters.taken(SIZE);
        assert_eq!((counters.global_steps, counters.skipped_steps, counters.schedule), (2, 1, 1));
        assert_eq!((counters.micro_steps, counters.global_samples), (8, 96));
    }
}
