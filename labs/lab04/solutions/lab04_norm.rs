//! lab04-norm · One norm for sharded gradients

use shardlab::comm::{Comm, Reduce, Result};

/// One rank's gradients.
#[derive(Clone, Copy, Debug)]
pub struct Gradients<'a> {
    /// This rank's shard. Its last `padding` numbers are padding.
    pub shard: &'a [f32],
    pub padding: usize,
    /// The gradients of the replicated parameters, the same on every rank.
    pub replicated: &'a [f32],
}

/// The norm of all gradients of the model, the same on every rank. None if it is not finite: then
/// every rank skips the step.
pub fn global_norm(comm: &Comm, gradients: &Gradients) -> Result<Option<f64>> {
    let Gradients { shard, padding, replicated } = *gradients;
    // In f64: the square of a large f32 does not fit into f32.
    let squares = |numbers: &[f32]| numbers.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>();
    let mut sum = [squares(&shard[..shard.len() - padding])];
    comm.all_reduce(&mut sum, Reduce::Sum)?;
    let norm = (sum[0] + squares(replicated)).sqrt();
    // A NaN on one rank is a NaN in the sum on every rank.
    Ok(norm.is_finite().then_some(norm))
}
