//! lab02-average · Gradients, averaged over ranks
//!
//! Every rank calls this function at the same time, each with gradients from its own data. When the function returns, all
//! ranks hold the same gradients: the mean over all ranks. They then take the same optimizer step, and stay one model.
//!
//! A batch that is too large for a rank's memory is cut into micro-batches. A backward pass *adds* its gradients to the
//! buffer, so after the last micro-batch the buffer holds the sum of all. The step needs the mean: as if the whole batch,
//! of all micro-batches and ranks, had gone through the model at once.
//!
//! Sending has a price: the check counts the bytes.

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
        todo!(
            "{:?} over {} ranks: is it time already?",
            Reduce::Mean,
            comm.size()
        );
    }
    Ok(())
}
