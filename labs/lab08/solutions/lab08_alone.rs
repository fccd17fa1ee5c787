//! lab08-alone · One rank finds a batch bad

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
    // Every rank asks, whatever its own loss is. So all ranks get the same answer, and make the same calls.
    if comm.any(!within)? {
        return Ok(false);
    }
    comm.all_reduce(&mut gradient, Reduce::Mean)?;
    replica.update(&gradient);
    Ok(true)
}
