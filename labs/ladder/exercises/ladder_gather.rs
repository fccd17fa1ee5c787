//! ladder-gather · Gather, use, free
//!
//! A rank holds a slice of everything: of each layer's weights, and of Adam's state. A slice of a
//! layer is of no use to a forward pass, so a layer becomes whole just before it runs, forward or
//! backward, and is freed afterwards. Its gradients, too, are whole for a moment only: never more
//! than two layers' at a time. With that, a rank sends as few bytes as possible.
//!
//! ```text
//! 4 ranks, between two steps and in the end: weights and Adam's state
//!
//!               rank 0         rank 1         rank 2         rank 3
//! layer 0       ███░░░░░░░░░   ░░░███░░░░░░   ░░░░░░███░░░   ░░░░░░░░░███
//! layer 1       ███░░░░░░░░░   ░░░███░░░░░░   ░░░░░░███░░░   ░░░░░░░░░███
//! …
//! returns       8 slices       8 slices       8 slices       8 slices
//!   of layer 0  0 to 1039      1040 to 2079   2080 to 3119   3120 to 4159
//! ```
//!
//! Begin with a copy of your `ladder_zero.rs`. The check counts the bytes that your rank has
//! allocated and not freed, each time a layer runs: one more whole layer than you need is allowed,
//! so that you may gather early. A `Vec` is freed where its variable ends, or by `drop`. If it is
//! shortened, it keeps its memory.

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: a slice.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    todo!(
        "rank {me} of {ranks}: a slice of each layer (the first layer's has {} parameters), and the {:?} of gradients",
        Adam::new(rank.numel(0) / ranks).numel(),
        Reduce::Mean
    )
}
