//! lab08-alone · One rank finds a batch bad
//!
//! Broken on purpose: without bad batches it trains well. With one bad batch it trains on, and
//! hangs at the end of the run.
//!
//! A team's loss jumped whenever a batch had damaged text. So a colleague added three lines: a step
//! is not taken if a loss is above a bound. The next run had only one such batch, in step 5, and
//! passed it without a jump. All ranks went on as before. But the run never ended: it hung in its
//! last step, thousands of steps after the bad batch.
//!
//! ```text
//!  2 ranks, 2 micro-batches per step; rank 1's micro-batch 9 is bad
//!    learns from     step 4   step 5   step 6   step 7   ..
//!      rank 0         7  8      -      11 12    13 14
//!      rank 1         7  8      -      11 12    13 14
//! ```
//!
//! Repair it: a step is not taken if a loss is above `bound`, or NaN, on any rank.
//!
//! - If the step is not taken, no rank updates its weights. If it is, all ranks update with the
//!   mean gradient of all ranks.
//! - Every other step learns from the micro-batches that it would have had, and the run ends.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};

/// One rank's model and data.
pub trait Replica {
    /// Draws this rank's next micro-batch, and runs its forward and backward pass: its loss and
    /// gradient.
    fn forward_backward(&mut self) -> (f64, Vec<f64>);
    /// The optimizer's step.
    fn update(&mut self, gradient: &[f64]);
}

/// One training step. Every rank calls it. Returns whether the step was taken.
pub fn step(
    comm: &Comm,
    replica: &mut dyn Replica,
    micro_batches: usize,
    bound: f64,
) -> Result<bool> {
    let mut gradient = Vec::new();
    for _ in 0..micro_batches {
        let (loss, of_micro) = replica.forward_backward();
        // NaN is not within any bound.
        let within = loss <= bound;
        if !within {
            return Ok(false);
        }
        gradient.resize(of_micro.len(), 0.0);
        for (sum, g) in gradient.iter_mut().zip(of_micro) {
            *sum += g / micro_batches as f64;
        }
    }
    comm.all_reduce(&mut gradient, Reduce::Mean)?;
    replica.update(&gradient);
    Ok(true)
}
