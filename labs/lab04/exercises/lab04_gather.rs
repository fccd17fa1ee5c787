//! lab04-gather · Gather, use, free
//!
//! ZeRO's last stage shards the parameters, too: a rank has a slice of every block, and nothing can
//! be computed with a slice. Write the forward and the backward pass of one rank, with little
//! memory and few bytes:
//!
//! - While a block runs, no rank has the whole parameters of a second one, nor the whole gradients
//!   of one that ran before.
//! - With so little memory, it sends as few bytes as possible.
//!
//! ```text
//! 2 ranks, a model of three blocks with 5, 4 and 2 parameters
//!
//!            rank 0                          rank 1
//! gets       [p0 p1 p2]  [p0 p1]  [p0]       [p3 p4  ·]  [p2 p3]  [p1]
//! returns    [g0 g1 g2]  [g0 g1]  [g0]       [g3 g4  ·]  [g2 g3]  [g1]
//!             block 0    block 1  block 2     block 0    block 1  block 2
//!
//! p: parameters   g: gradients, the mean of both ranks'   ·: padding, 0
//! ```
//!
//! A block runs with exactly its parameters: padding is none. `comm.all_gather(&mine, &mut all)`
//! leaves all ranks' `mine` in every rank's `all`, in rank order.
//! `comm.reduce_scatter(&all, &mut mine, how)` combines all ranks' `all`, and leaves slice r of the
//! result in rank r's `mine`. For both, `all` must be exactly as long as n slices.
//!
//! A `Vec` is freed where its variable ends, or by `drop`. The check counts the bytes that your
//! rank has allocated and not freed, each time a block runs.

use shardlab::comm::{Comm, Reduce, Result};

/// A model: a chain of blocks. It keeps the activations itself, and no parameters.
pub trait Blocks {
    /// The parameters of a block, without padding.
    fn numel(&self, block: usize) -> usize;
    /// Runs a block forward. Its input is the output of the block before it.
    fn forward(&mut self, block: usize, parameters: &[f32]);
    /// Runs a block backward, and returns the gradients of its parameters. The block after it must
    /// have run backward.
    fn backward(&mut self, block: usize, parameters: &[f32]) -> Vec<f32>;
}

/// The forward and the backward pass of a rank that has `slices`, one of each block. It returns its
/// slices of the mean gradients, in the same order.
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
