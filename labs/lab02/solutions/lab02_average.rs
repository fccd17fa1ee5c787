//! lab02-average · Gradients, averaged over ranks

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
    // `backward` adds to what is there, and the last step's gradients are still there.
    gradients.fill(0.0);
    for micro in 0..micro_steps {
        backward(micro, gradients);
    }
    // All micro-batches are in, so the ranks add up once.
    sum(gradients)?;
    let terms = (ranks * micro_steps) as f32;
    for g in gradients {
        *g /= terms;
    }
    Ok(())
}
