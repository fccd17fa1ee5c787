//! Gradients that are averaged too early.
//!
//! The library averages in the backward pass of a step's last micro-batch, which it knows by its
//! number. So here they are numbered backwards: the first that runs is called the last.

use shardlab::data::{Batch, Sampler};
use shardlab::parallel::pipeline::Instruction;
use shardlab::train::{Observer, Training};

/// Draws the batches of a step in which micro-batches are numbered backwards.
pub struct NumberedBackwards<'a> {
    sampler: Sampler,
    text: &'a [u32],
    micro_batches: usize,
    step: usize,
}

impl<'a> NumberedBackwards<'a> {
    /// Numbers the micro-batches of `training` backwards, from now on.
    pub fn of(training: &mut Training, text: &'a [u32]) -> NumberedBackwards<'a> {
        let micro_batches = training.micro_batches();
        for instruction in &mut training.program {
            let (Instruction::Compute(op)
            | Instruction::Send { op, .. }
            | Instruction::Recv { op, .. }) = instruction;
            op.micro = micro_batches - 1 - op.micro;
        }
        NumberedBackwards { sampler: training.sampler(), text, micro_batches, step: 0 }
    }
}

impl Observer for NumberedBackwards<'_> {
    fn drawn(&mut self, micro_batch: usize, _batch: Batch) -> Batch {
        let last = self.micro_batches - 1;
        let batch = self.sampler.batch(self.text, self.step, last - micro_batch);
        self.step += usize::from(micro_batch == last);
        batch
    }
}
