//! `lab07-mesh`: a rank's place on each axis, and its groups.

use shardlab::mesh::{Axis, Coordinates, Layout, Order};

/// A rank's coordinates, from 0, and its group along each axis: the ranks' numbers, in the order of
/// their coordinates.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub at: Coordinates,
    pub data: Vec<usize>,
    pub pipeline: Vec<usize>,
    pub tensor: Vec<usize>,
}

/// Of a rank, the mesh's sizes, and the order in which ranks fill it.
pub type Mesh = fn(usize, Coordinates, Order) -> Place;

pub fn library(rank: usize, sizes: Coordinates, order: Order) -> Place {
    let layout = Layout { sizes, order };
    Place {
        at: layout.coordinates(rank),
        data: layout.group(rank, Axis::Data),
        pipeline: layout.group(rank, Axis::Pipeline),
        tensor: layout.group(rank, Axis::Tensor),
    }
}

/// Every rank is alone.
pub fn without(rank: usize, _sizes: Coordinates, _order: Order) -> Place {
    Place {
        at: Coordinates { data: 0, pipeline: 0, tensor: 0 },
        data: vec![rank],
        pipeline: vec![rank],
        tensor: vec![rank],
    }
}
