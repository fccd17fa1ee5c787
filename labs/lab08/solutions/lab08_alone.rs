//! lab08-alone · One rank finds a batch bad

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
    let mut bad = false;
    for _ in 0..micro_batches {
        let (loss, of_micro) = replica.forward_backward();
        // NaN is not within any bound.
        let within = loss <= bound;
        bad |= !within;
        gradient.resize(of_micro.len(), 0.0);
        for (sum, g) in gradient.iter_mut().zip(of_micro) {
            *sum += g / micro_batches as f64;
        }
    }
    // Every rank asks, whatever its own losses are, and when all its micro-batches are drawn. So
    // all ranks get the same answer, make the same calls, and go on with the same data.
    if comm.any(bad)? {
        return Ok(false);
    }
    comm.all_reduce(&mut gradient, Reduce::Mean)?;
    replica.update(&gradient);
    Ok(true)
}
