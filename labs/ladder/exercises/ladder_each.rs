//! ladder-each · One parameter list at a time
//!
//! `labs/ladder/one_rank.rs` trains a small model on one rank, which computes all parts of each
//! step's batch one after the other. Here every rank runs your function at the same moment, and
//! there are as many parts as ranks. Together the ranks train the same model, bit by bit, in less
//! time. Begin with a copy of `train` and `add` in `one_rank.rs`.
//!
//! ```text
//!                          rank 0           rank 1           one rank
//! computes, in each step   part 0           part 1           parts 0 and 1
//! a layer's gradient       [ 2  -1   4 ]    [ 0   3   2 ]    both of them
//! updates the layer with   [ 1   1   3 ]    [ 1   1   3 ]    [ 1   1   3 ]
//! returns                  all layers       all layers       all layers
//! ```
//!
//! `rank.world()` is the group of all ranks. You need three of its methods:
//!
//! - `world.rank()` is this rank's number, and `world.size()` is how many ranks there are.
//! - `world.all_reduce(&mut numbers, Reduce::Mean)?` replaces every rank's `numbers` by the mean of
//!   all ranks' numbers. All ranks must make the same calls in the same order.
//!
//! The link between the ranks is slow. The score says how many bytes a rank holds and sends, and
//! how long a step would take with that link.

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its
/// parameters.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    todo!(
        "rank {} of {}: an Adam for each layer (the first has {} parameters), its part of each batch, the {:?} of gradients",
        world.rank(),
        world.size(),
        Adam::new(rank.numel(0)).numel(),
        Reduce::Mean
    )
}
