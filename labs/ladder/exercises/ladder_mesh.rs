//! ladder-mesh · Two axes
//!
//! Ranks of one node have a fast link to each other, and share each layer's work: a rank holds some
//! of a layer's units. The nodes share the batch, over a slow link. So a rank is in two groups:
//! `rank.tensor()` are the ranks of its node, and `rank.data()` are the ranks of all nodes that
//! have the same units.
//!
//! ```text
//!                          node 0                      node 1
//!                    rank 0        rank 1        rank 2        rank 3
//! tensor().rank()    0             1             0             1
//! data().rank()      0             0             1             1
//!
//! part               0             0             1             1
//! units of a layer   0 to 31       32 to 63      0 to 31       32 to 63
//! returns            its units     its units     its units     its units
//! ```
//!
//! A layer's parameters are its units, one after the other, `rank.unit(layer)` numbers each. With
//! some of the units as weights, `rank.forward` gives their summand of the layer's output, and
//! `rank.backward` their summand of the input's gradient, and the whole gradients of these units.
//!
//! Begin with a copy of your `ladder_overlap.rs`. On the slow link a rank sends the gradients of
//! its own units, and nothing else.

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its own
/// units.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let (tensor, data) = (rank.tensor(), rank.data());
    todo!(
        "rank {} of node {}: some units of each layer (all units of the first have {} parameters), and {:?} or {:?} over a group",
        tensor.rank(),
        data.rank(),
        Adam::new(rank.numel(0)).numel(),
        Reduce::Sum,
        Reduce::Mean
    )
}
