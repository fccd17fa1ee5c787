//! lab07-mesh · A rank's place in the mesh
//!
//! A job with three axes starts as a row of ranks, numbered from 0. A rank's number decides which
//! coordinate it has on each axis, and with whom it communicates. Its group along an axis has the
//! rank itself, and the ranks that differ from it on this axis only.
//!
//! The order of the mesh says which axis runs fastest, as the last digit of a number does:
//!
//! | `Order` | fastest | | slowest | used by |
//! |---|---|---|---|---|
//! | `PipelineSlowest` | tensor | data | pipeline | Megatron-LM, DeepSpeed |
//! | `DataSlowest` | tensor | pipeline | data | picotron, ezpz |
//!
//! ```text
//!  rank 5 of 3 data x 2 pipeline x 2 tensor ranks
//!                     at                             data    pipeline  tensor
//!    PipelineSlowest  data 2, pipeline 0, tensor 1   1 3 5   5 11      4 5
//!    DataSlowest      data 1, pipeline 0, tensor 1   1 5 9   5 7       4 5
//! ```
//!
//! Both types come from the library: `Coordinates` has the fields `data`, `pipeline` and `tensor`.
//! Write the coordinates first, and leave the groups empty: the check looks at the coordinates
//! first.

use shardlab::mesh::{Coordinates, Order};

/// A rank's coordinates, from 0, and its group along each axis: the ranks' numbers, in the order of
/// their coordinates.
pub struct Place {
    pub at: Coordinates,
    pub data: Vec<usize>,
    pub pipeline: Vec<usize>,
    pub tensor: Vec<usize>,
}

/// The place of `rank` in a mesh with `sizes.data` x `sizes.pipeline` x `sizes.tensor` ranks.
pub fn place(rank: usize, sizes: Coordinates, order: Order) -> Place {
    todo!("rank {rank} of {sizes:?}, {order:?}: its coordinates, then its three groups")
}
