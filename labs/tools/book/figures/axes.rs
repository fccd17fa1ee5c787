//! lab07's mesh.

use crate::draw::Replicas;
use shardlab::mesh::{Coordinates, Layout, Order};

/// lab07's mesh.
pub(super) fn picture() -> Replicas {
    let layout = Layout {
        sizes: Coordinates { data: 2, pipeline: 2, tensor: 2 },
        order: Order::default(),
    };
    let cell = |data, pipeline| {
        (0..2)
            .map(|tensor| layout.rank(Coordinates { data, pipeline, tensor }))
            .collect()
    };
    let ranks = (0..2)
        .map(|data| (0..2).map(|pipeline| cell(data, pipeline)).collect())
        .collect();
    let layers = ["stage 0: layers 0-1", "stage 1: layers 2-3"].map(String::from).to_vec();
    Replicas { ranks, layers }
}
