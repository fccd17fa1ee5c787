//! lab02-average · Gradients, averaged over ranks
//!
//! Every rank runs this function at the same time, each with gradients from data of its own. When it returns, all ranks
//! hold the same gradients: the mean over all ranks. They will then take the same optimizer step, and stay one model.
//!
//! A batch that is too large for a rank's memory is cut into micro-batches. A backward pass *adds* its gradients to what is
//! there, so after the last one the buffer holds their sum. The step wants their mean: as if the whole batch, of all
//! micro-batches and ranks, had gone through the model at once.
//!
//! What is sent to other ranks has its price: the check counts the bytes.

use shardlab::comm::{Comm, Reduce, Result};

/// One step's gradients: the mean over `micro_steps` micro-batches and all ranks of `comm`, in `gradients`.
///
/// `backward(micro, gradients)` adds the gradients of this rank's micro-batch number `micro` to `gradients`.
pub fn step(
    comm: &Comm,
    micro_steps: usize,
    gradients: &mut [f32],
    backward: &dyn Fn(usize, &mut [f32]),
) -> Result<()> {
    // What the last step left.
    gradients.fill(0.0);
    for micro in 0..micro_steps {
        backward(micro, gradients);
        todo!("{:?} over {} ranks: is it time already?", Reduce::Mean, comm.size());
    }
    Ok(())
}
