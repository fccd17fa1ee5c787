//! lab02-average · Gradients, averaged over ranks

use shardlab::comm::{Comm, Reduce, Result};

/// Leaves one step's gradients in `gradients`: the mean over `micro_steps` micro-batches and all ranks of `comm`.
///
/// `backward(micro, gradients)` adds the gradients of this rank's micro-batch number `micro` to `gradients`.
pub fn step(
    comm: &Comm,
    micro_steps: usize,
    gradients: &mut [f32],
    backward: &dyn Fn(usize, &mut [f32]),
) -> Result<()> {
    // Clear what the last step left.
    gradients.fill(0.0);
    for micro in 0..micro_steps {
        backward(micro, gradients);
    }
    // All micro-batches are in, so one all-reduce is enough for the whole step.
    comm.all_reduce(gradients, Reduce::Mean)?;
    for g in gradients {
        *g /= micro_steps as f32;
    }
    Ok(())
}
