//! `lab02-average`: one step's gradients, the mean over micro-batches and ranks.

use shardlab::comm::Result;

/// Adds up the ranks' numbers, on every rank.
pub type Sum<'a> = &'a dyn Fn(&mut [f32]) -> Result<()>;

/// Adds the gradients of one of this rank's micro-batches.
pub type Backward<'a> = &'a dyn Fn(usize, &mut [f32]);

/// The sum, the ranks, the micro-batches of a rank, its gradients, and the backward pass of one
/// micro-batch.
pub type Average = fn(Sum, usize, usize, &mut [f32], Backward) -> Result<()>;

pub fn library(
    sum: Sum,
    ranks: usize,
    micro_steps: usize,
    gradients: &mut [f32],
    backward: Backward,
) -> Result<()> {
    gradients.fill(0.0);
    for micro in 0..micro_steps {
        backward(micro, gradients);
    }
    sum(gradients)?;
    for g in gradients {
        *g /= (ranks * micro_steps) as f32;
    }
    Ok(())
}

/// Every rank keeps the sum of its own micro-batches.
pub fn without(
    _sum: Sum,
    _ranks: usize,
    micro_steps: usize,
    gradients: &mut [f32],
    backward: Backward,
) -> Result<()> {
    gradients.fill(0.0);
    for micro in 0..micro_steps {
        backward(micro, gradients);
    }
    Ok(())
}
