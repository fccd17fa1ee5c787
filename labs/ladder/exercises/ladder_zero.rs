//! ladder-zero · ZeRO-1
//!
//! So far every rank holds Adam's state of the whole model, two numbers per parameter, and all
//! ranks compute the same update. Now a rank holds the state of a slice, and no parameter's state
//! is on two ranks. All else stays as it was: the weights are whole on every rank, each rank
//! computes its own part of the batch, and a rank sends no more bytes than before.
//!
//! ```text
//! 4 ranks, and layer 0 with its 4,160 parameters
//!
//!                    rank 0         rank 1         rank 2         rank 3
//! weights            ████████████   ████████████   ████████████   ████████████
//! Adam's state       ███░░░░░░░░░   ░░░███░░░░░░   ░░░░░░███░░░   ░░░░░░░░░███
//!   of parameters    0 to 1039      1040 to 2079   2080 to 3119   3120 to 4159
//!
//! returns            ████████████   ████████████   ████████████   ████████████
//! bytes sent         2(n-1)/n of the model's per step, as an all-reduce
//! ```
//!
//! Begin with a copy of your `ladder_each.rs`. `Adam::new(numel)` is the state of as many
//! parameters as you say, and `rank.update` takes as many weights and gradients. The calls of a
//! group are in `labs/ladder/group.rs`. Slices are equal: 2 and 4 ranks divide each layer.

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its
/// parameters.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    todo!(
        "rank {me} of {ranks}: the state of a slice (the first layer's has {} numbers of each kind), and the {:?} of gradients",
        Adam::new(rank.numel(0) / ranks).numel(),
        Reduce::Mean
    )
}
