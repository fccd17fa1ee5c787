//! lab02-average · Gradients, averaged over ranks
//!
//! A batch that is too large for a rank's memory is cut into micro-batches. Each of them gives its
//! own gradients. The optimizer needs their mean over all micro-batches and all ranks: as if the
//! whole batch had gone through one model at once.
//!
//! ```text
//!                                   rank 0      rank 1
//! gradients, from the last step      7   7       7   7
//! micro-batch 0 adds                 1   2       5   6
//! micro-batch 1 adds                 3   4       7   8
//! gradients, after your step         4   5       4   5
//! ```
//!
//! Every rank calls this function at the same time. The only collective that it gets is one that
//! adds up: the ring that you wrote in lab01 cannot do more, either. What it sends is what the step
//! costs: send as few bytes as possible.

use shardlab::comm::Result;

/// Leaves one step's gradients in `gradients`: the mean over `micro_steps` micro-batches and all
/// `ranks`.
///
/// `backward(micro, gradients)` adds the gradients of this rank's micro-batch number `micro` to
/// `gradients`. `sum(numbers)` adds up all ranks' numbers in place, on every rank, such as the ring
/// of lab01-ring.
pub fn step(
    ranks: usize,
    sum: &dyn Fn(&mut [f32]) -> Result<()>,
    micro_steps: usize,
    gradients: &mut [f32],
    backward: &dyn Fn(usize, &mut [f32]),
) -> Result<()> {
    for micro in 0..micro_steps {
        backward(micro, gradients);
        sum(gradients)?;
        todo!("micro-batch {micro} on {ranks} ranks: what is missing, and is it time for `sum`?");
    }
    Ok(())
}
