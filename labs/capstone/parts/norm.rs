//! `lab04-norm`: one norm of gradients that ranks share.

use shardlab::comm::{Comm, Reduce, Result};

/// This rank's shard, how many numbers at its end are padding, and the gradients that every rank
/// has. None if the norm is not finite.
pub type Norm = fn(&Comm, &[f32], usize, &[f32]) -> Result<Option<f64>>;

pub fn library(
    comm: &Comm,
    shard: &[f32],
    padding: usize,
    replicated: &[f32],
) -> Result<Option<f64>> {
    let sum = comm.reduced(squares(&shard[..shard.len() - padding]), Reduce::Sum)?;
    let norm = (sum + squares(replicated)).sqrt();
    Ok(norm.is_finite().then_some(norm))
}

/// The norm of what this rank has. Ranks do not agree on it.
pub fn without(
    _comm: &Comm,
    shard: &[f32],
    padding: usize,
    replicated: &[f32],
) -> Result<Option<f64>> {
    let norm = (squares(&shard[..shard.len() - padding]) + squares(replicated)).sqrt();
    Ok(norm.is_finite().then_some(norm))
}

fn squares(numbers: &[f32]) -> f64 {
    numbers.iter().map(|&g| f64::from(g) * f64::from(g)).sum()
}
