//! lab08-alone · One rank finds a batch bad
//!
//! Broken on purpose: without bad batches it trains well. With one bad batch it trains on, and hangs at the end of the run.
//!
//! A team's loss jumped whenever a batch had damaged text. So a colleague added three lines: a step is not taken if its loss
//! is above a bound. The next run had only one such batch, in step 5, and passed it without a jump. All ranks went on as
//! before. But the run never ended: it hung in its last step, thousands of steps after the bad batch.
//!
//! Repair it: a step is not taken if the loss is above `bound`, or NaN, on any rank.
//!
//! - If the step is not taken, no rank updates its weights. If it is, all ranks update with the mean gradient of all ranks.
//! - All ranks hold the same weights after each step, and the run ends.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};

/// One rank's model and data.
pub trait Replica {
    /// The forward and backward pass of this rank's next batch: its loss and gradient.
    fn forward_backward(&mut self) -> (f64, Vec<f64>);
    /// The optimizer's step.
    fn update(&mut self, gradient: &[f64]);
}

/// One training step. Every rank calls it. Returns whether the step was taken.
pub fn step(comm: &Comm, replica: &mut dyn Replica, bound: f64) -> Result<bool> {
    let (loss, mut gradient) = replica.forward_backward();
    // NaN is not within any bound.
    let within = loss <= bound;
    if !within {
        return Ok(false);
    }
    comm.all_reduce(&mut gradient, Reduce::Mean)?;
    replica.update(&gradient);
    Ok(true)
}
