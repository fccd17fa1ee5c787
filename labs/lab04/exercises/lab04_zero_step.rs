//! lab04-zero-step · Each rank updates its own slice
//!
//! Data parallelism averages all gradients on all ranks. Then every rank takes the same optimizer step, so every rank holds
//! the optimizer states of all parameters. ZeRO takes the same step, but each rank holds only a slice of these states.
//!
//! An all-reduce is two collectives in one. After a reduce-scatter each rank holds its own slice of the mean, and an
//! all-gather then gives all slices to every rank. Between the two, a rank has all that its slice of the step needs.
//!
//! `comm.reduce_scatter(&all, &mut mine, how)` combines all ranks' `all`, and leaves slice r of the result in rank r's
//! `mine`. `comm.all_gather(&mine, &mut all)` leaves all ranks' `mine` in every rank's `all`, in rank order. For both, `all`
//! must be exactly as long as n slices. If n does not divide the length, append zeros. The check compares with all-reduce
//! and a whole update, bit by bit. It also counts the bytes, and the numbers that a rank updates.

use shardlab::comm::{Comm, Reduce, Result};

/// One step of one rank. It leaves `parameters` as an update of all of them with the mean gradients of all ranks would.
///
/// `update(parameters, gradients)` is the optimizer. Call it once per step, with a rank's slice of the parameters and the
/// mean gradients of the same slice.
pub fn step(
    comm: &Comm,
    gradients: &[f32],
    parameters: &mut [f32],
    update: &mut dyn FnMut(&mut [f32], &[f32]),
) -> Result<()> {
    let n = comm.size();
    let rank = comm.rank();
    let len = parameters.len();
    if n == 1 {
        // With one rank there is nothing to send.
        update(parameters, gradients);
        return Ok(());
    }
    todo!(
        "rank {rank} of {n}: the mean ({:?}) of its slice of {len} gradients, its update, all slices",
        Reduce::Mean
    )
}
