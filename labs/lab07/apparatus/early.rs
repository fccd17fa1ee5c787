//! Gradients that are averaged too early.
//!
//! The library averages in the backward pass of a step's last micro-batch, which it knows by its
//! number. So here they are numbered backwards: the first that runs is called the last.

use shardlab::data::Batch;
use shardlab::parallel::pipeline::Instruction;
use shardlab::train::{MicroBatch, Observer, Training};

/// Draws the batches of a step in which micro-batches are numbered backwards.
pub struct NumberedBackwards {
    micro_batches: usize,
}

impl NumberedBackwards {
    /// Numbers the micro-batches of `training` backwards, from now on.
    pub fn of(training: &mut Training) -> NumberedBackwards {
        let micro_batches = training.micro_batches();
        for instruction in &mut training.program {
            let (Instruction::Compute(op)
            | Instruction::Send { op, .. }
            | Instruction::Recv { op, .. }) = instruction;
            op.micro = micro_batches - 1 - op.micro;
        }
        NumberedBackwards { micro_batches }
    }
}

impl Observer for NumberedBackwards {
    fn batch(&mut self, micro_batch: MicroBatch) -> Batch {
        let number = self.micro_batches - 1 - micro_batch.number;
        MicroBatch { number, ..micro_batch }.draw()
    }
}
