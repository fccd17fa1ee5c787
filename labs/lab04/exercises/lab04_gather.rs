//! lab04-gather · Gather, use, free
//!
//! ZeRO's last stage shards the parameters, too. A rank holds its slice of every block, and nothing can be computed with a
//! slice. So the ranks make a block whole just before they use it, forward or backward, and free it right after. A backward
//! pass gives the gradients of a whole block. The ranks average them, and each keeps its slice.
//!
//! - When a block runs, a rank has no other block's whole parameters, and no other block's whole gradients.
//! - A `Vec` is freed where its variable ends, or by `drop`. The check counts the bytes that your rank has allocated and not
//!   freed, each time a block runs.
//! - All slices of a block are equally long, so the last ones may end with padding. Padding is no parameter.
//!
//! `comm.all_gather(&mine, &mut all)` leaves all ranks' `mine` in every rank's `all`, in rank order. `comm.reduce_scatter(&all,
//! &mut mine, how)` combines all ranks' `all`, and leaves slice r of the result in rank r's `mine`. For both, `all` must be
//! exactly as long as n slices.

use shardlab::comm::{Comm, Reduce, Result};

/// A model: a chain of blocks. It keeps the activations itself, and no parameters.
pub trait Blocks {
    /// The parameters of a block, without padding.
    fn numel(&self, block: usize) -> usize;
    /// Runs a block forward. Its input is the output of the block before it.
    fn forward(&mut self, block: usize, parameters: &[f32]);
    /// Runs a block backward, and returns the gradients of its parameters. The block behind it must have run backward.
    fn backward(&mut self, block: usize, parameters: &[f32]) -> Vec<f32>;
}

/// The forward and the backward pass of a rank that has `slices`, one of each block. It returns its slices of the mean
/// gradients, in the same order.
pub fn passes(comm: &Comm, slices: &[Vec<f32>], model: &mut dyn Blocks) -> Result<Vec<Vec<f32>>> {
    todo!(
        "rank {} of {}: {} blocks, the first of them has {} parameters; the mean ({:?}) of gradients",
        comm.rank(),
        comm.size(),
        slices.len(),
        model.numel(0),
        Reduce::Mean
    )
}
