//! ladder-pipeline · A pipeline
//!
//! Each rank holds some layers, whole, and runs all parts of the batch through them. It gets a
//! part's activations from the rank before it, and the gradient of its own output from the rank
//! after it. What travels is small: `rank.activations()` numbers.
//!
//! ```text
//! 4 ranks, 8 parts
//!
//!                    rank 0         rank 1         rank 2         rank 3
//! weights and Adam   layers 0, 1    layers 2, 3    layers 4, 5    layers 6, 7
//! rank.input         parts 0 to 7   -              -              -
//! rank.loss          -              -              -              parts 0 to 7
//! returns            2 layers       2 layers       2 layers       2 layers
//! parts in flight    at most 4      at most 3      at most 2      at most 1
//! ```
//!
//! A part is in flight on a rank from its forward pass to its backward pass there, because until
//! then the rank keeps its inputs. Begin with any order that works, even one in which all forward
//! passes come first: the check looks at what is trained, then at the time, and at the parts in
//! flight last.
//!
//! Begin with a copy of `labs/ladder/one_rank.rs`, in which `crate` becomes `ladder`. `send` does
//! not wait. `recv` waits.

use ladder::{Adam, Rank, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its own
/// layers, in order.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    todo!(
        "rank {me} of {ranks}: some layers (the first has {} parameters), and all {} parts",
        Adam::new(rank.numel(0)).numel(),
        rank.parts()
    )
}
