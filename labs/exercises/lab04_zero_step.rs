//! lab04-zero-step · Each rank updates its own part
//!
//! Data parallelism averages all gradients on all ranks, and then every rank takes the same optimizer step: it holds the
//! optimizer's numbers for all parameters, as all others do. ZeRO takes the same step with a part of them on each rank.
//!
//! An all-reduce is two collectives in one: a reduce-scatter, after which each rank holds its own part of the mean, and an
//! all-gather, which hands these parts to everyone. What a rank needs for its part of the step is known between the two.
//!
//! `comm.reduce_scatter(&all, &mut mine, how)` combines all ranks' `all`, and leaves part r of it in rank r's `mine`.
//! `comm.all_gather(&mine, &mut all)` leaves all ranks' `mine` in everyone's `all`, in rank order. Both want `all` to be
//! exactly as long as n parts: where the ranks do not divide the numbers, zeros behind the last one help. The check compares
//! with all-reduce and a whole update, bit by bit, counts the bytes, and sees which numbers a rank updates.

use shardlab::comm::{Comm, Reduce, Result};

/// One step of one rank: `parameters` become what an update of all of them by all ranks' mean gradients would make them.
///
/// `update(parameters, gradients)` is the optimizer: once a step it moves a rank's part of the parameters by the mean
/// gradients of the same part.
pub fn step(
    comm: &Comm,
    gradients: &[f32],
    parameters: &mut [f32],
    update: &mut dyn FnMut(&mut [f32], &[f32]),
) -> Result<()> {
    let (n, rank, len) = (comm.size(), comm.rank(), parameters.len());
    if n == 1 {
        // One rank alone has nobody to ask and nobody to tell.
        update(parameters, gradients);
        return Ok(());
    }
    todo!("rank {rank} of {n}: the mean ({:?}) of its part of {len} gradients, its update, all parts", Reduce::Mean)
}
