//! lab08-skip as a part of the trainer.

use capstone::parts::{Counters, Trainer};
use shardlab::data::Batch;

/// The trainer of a rank, as the exercise names it.
struct Named<'a>(&'a mut dyn Trainer);

impl lab08_skip::Trainer for Named<'_> {
    fn read(&mut self, first: usize) -> Batch {
        self.0.read(first)
    }

    fn train(&mut self, batches: &[Batch], schedule: usize) {
        self.0.train(batches, schedule);
    }
}

pub fn take(parts: &mut capstone::Parts) {
    parts.skip = |run, counters, trainer| {
        let run = lab08_skip::Run {
            skip: run.skip,
            rank: run.rank,
            ranks: run.ranks,
            accumulation: run.accumulation,
            batch: run.batch,
        };
        let mut yours = lab08_skip::Counters {
            global_steps: counters.global_steps,
            skipped_steps: counters.skipped_steps,
            global_samples: counters.global_samples,
            schedule: counters.schedule,
        };
        lab08_skip::iteration(&run, &mut yours, &mut Named(trainer));
        *counters = Counters {
            global_steps: yours.global_steps,
            skipped_steps: yours.skipped_steps,
            global_samples: yours.global_samples,
            schedule: yours.schedule,
        };
    };
}
