//! lab07-mesh · A rank's place in the mesh

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
    // How far apart neighbours on an axis are: the sizes of all faster axes, multiplied.
    let tensor = 1;
    let (data, pipeline) = match order {
        Order::PipelineSlowest => (sizes.tensor, sizes.tensor * sizes.data),
        Order::DataSlowest => (sizes.tensor * sizes.pipeline, sizes.tensor),
    };
    let at = Coordinates {
        data: rank / data % sizes.data,
        pipeline: rank / pipeline % sizes.pipeline,
        tensor: rank / tensor % sizes.tensor,
    };
    // A group begins where its axis has coordinate 0, and goes on in steps.
    let group = |at: usize, step: usize, size: usize| {
        let first = rank - at * step;
        (0..size).map(|i| first + i * step).collect()
    };
    Place {
        at,
        data: group(at.data, data, sizes.data),
        pipeline: group(at.pipeline, pipeline, sizes.pipeline),
        tensor: group(at.tensor, tensor, sizes.tensor),
    }
}
