//! How long a collective takes along a ring, on any network.

use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::plan::{Network, simulate};

/// Seconds of a collective over `numel` elements of `bytes` bytes, along a ring.
pub fn ring(
    collective: Collective,
    numel: u64,
    ranks: usize,
    bytes: usize,
    network: &Network,
) -> f64 {
    let len = if collective == Collective::AllReduce {
        numel
    } else {
        numel.div_ceil(ranks as u64)
    };
    let task = Task::new(collective, Algorithm::Ring, ranks, len as usize, bytes, 0)
        .expect("a ring takes any length");
    simulate(&task, bytes, network)
}
