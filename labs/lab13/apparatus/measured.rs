//! One step by one strategy, beside one rank's.

use super::job::params;
use super::one_rank::replay;
use super::{Job, OneRank, Taken};
use anyhow::Result;
use kit::parity::{farthest, stored_gradients};
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::Strategy;

/// A step, and how far it is from one rank's.
#[derive(Clone, Debug)]
pub struct Measured {
    pub strategy: Strategy,
    pub taken: Taken,
    /// The largest difference of a parameter's gradient from one rank's, norm by norm, on any rank.
    pub gradients: f64,
    /// The parameter whose gradient that is, on rank 0.
    pub farthest: String,
}

/// Computes the first step by a strategy of data ranks that share experts.
///
/// # Errors
/// If a pass or a message fails.
pub fn measure(job: &Job, strategy: &Strategy, world: &Comm, one: &OneRank) -> Result<Measured> {
    let mut watched = job.begin(strategy, world)?;
    let passes = watched.training.draw(job.text, 0, &mut ())?;
    replay(job, &watched.training, 0, one, &passes)?;
    let mut taken = job.compute(&mut watched, world, &passes)?;
    let before = world.total_traffic().bytes;
    taken.norm = watched.training.zero.norm()?;
    taken.add_bytes(&watched.training, world, before)?;
    let params = params(&watched.training);
    let found = stored_gradients(params);
    let (gradients, farthest) = farthest(params, &found, &one.gradients);
    let gradients = world.reduced(gradients, Reduce::Max)?;
    Ok(Measured { strategy: *strategy, taken, gradients, farthest })
}
