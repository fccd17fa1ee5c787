//! Networks in a few numbers: the time of a message within a node and between nodes.
//!
//! The alpha-beta model: a message of S bytes takes latency + S / bandwidth. A rank sends one
//! message at a time and receives one at a time, and can do both at once. Within a node, every rank
//! has its own link. Between nodes, the ranks of a node share its network cards: if more ranks than
//! cards send in the same round, they divide the bandwidth. The model leaves out additions and
//! congestion between nodes, so a real run is slower. Predictions are for comparing algorithms.
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication
//! operations in MPICH*, 2005.

use crate::link::Link;

/// Nodes of ranks, and the links between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The source of its figures.
    pub source: &'static str,
    /// Ranks 0 to p-1 are on the first node, the next p on the second, and so on.
    pub ranks_per_node: usize,
    /// The largest number of ranks.
    pub most_ranks: usize,
    /// Network cards of a node.
    pub cards: usize,
    /// Network cards that one collective can use on each node. NCCL builds a ring for each card, so
    /// that it can use all. A single flat ring leaves each node through one card.
    pub rings: usize,
    /// From rank to rank on a node.
    pub within: Link,
    /// From node to node, through one card.
    pub between: Link,
    /// Whether `within` is the sum of a rank's links to each other rank of its node, so that fewer
    /// ranks have less of it.
    pub direct: bool,
    /// Whether a rank can send the next message while the latency of the last one passes.
    pub pipelined: bool,
    /// The part of a link's bandwidth that a library's collectives reach. The formulas for a
    /// training count it; the simulator compares algorithms on links at their full speed.
    pub efficiency: f64,
}

/// The most ranks that the simulator accepts.
pub const MOST_RANKS: usize = 100_000;

/// A measured all-reduce of NCCL reached 235 of NVLink's 300 GB/s (stas00/ml-engineering, 2026);
/// between nodes it comes closer, 0.9 of a card's bandwidth. One figure is used for both.
const EFFICIENCY: f64 = 0.78;

const MICRO: f64 = 1e-6;
const GB: f64 = 1e9;

/// NCCL's own cost model assumes these latencies for a hop of a ring with its protocol for large
/// messages (`src/graph/tuning.cc`, 2026): over NVLink, over PCIe, over a network. Most of that is
/// software, which is busy with one message at a time.
pub const NVLINK: f64 = 3.4;
const PCIE: f64 = 5.7;
pub const NETWORK: f64 = 14.0;

/// The networks on which lab01 predicts collectives: ranks and cards of a node, latency in µs and
/// bandwidth in GB/s within a node and between nodes, from GPU to GPU and in one direction.
const PRESETS: [Network; 4] = [
    Network::new("nvlink")
        .about("one node, 8 GPUs, NVLink 300 GB/s")
        .source("NVIDIA A100 architecture, 2020: 8 A100 behind NVSwitch")
        .nodes(8, 1)
        .within(NVLINK, 300.0)
        .between(NVLINK, 300.0)
        .at_most(8),
    Network::new("polaris")
        .about("4 GPUs per node, NVLink 100 GB/s, 2 cards of 25 GB/s")
        .source("ALCF's Polaris guide: 4 NVLinks between any two A100; Slingshot 11")
        .nodes(4, 2)
        .within(NVLINK, 100.0)
        .between(NETWORK, 25.0),
    // A rank is a tile. Between the two tiles of one GPU 185 GB/s were measured, which a rank
    // rarely has to itself.
    Network::new("aurora")
        .about("12 tiles per node, Xe Link 15 GB/s, 8 cards of 25 GB/s")
        .source("ALCF's Aurora guide: measured from tile to tile; Slingshot 11")
        .nodes(12, 8)
        .within(PCIE, 15.0)
        .between(NETWORK, 25.0),
    // To NCCL's latency come 10 µs of TCP, its best on such a card.
    Network::new("ethernet")
        .about("one rank per node, 10 Gbit/s Ethernet")
        .source("10 Gbit/s; latency of TCP: S. Larsen et al., 2007")
        .nodes(1, 1)
        .within(24.0, 1.25)
        .between(24.0, 1.25),
];

const fn link(micro_seconds: f64, gigabytes: f64) -> Link {
    Link { latency: micro_seconds * MICRO, bandwidth: gigabytes * GB }
}

/// How a network is written down.
impl Network {
    /// A network without figures yet.
    pub const fn new(name: &'static str) -> Network {
        let link = Link { latency: 0.0, bandwidth: 0.0 };
        Network {
            name,
            about: "",
            source: "",
            ranks_per_node: 1,
            most_ranks: MOST_RANKS,
            cards: 1,
            rings: 1,
            within: link,
            between: link,
            direct: false,
            pipelined: false,
            efficiency: EFFICIENCY,
        }
    }

    /// One line about it.
    pub const fn about(self, about: &'static str) -> Network {
        Network { about, ..self }
    }

    /// The source of its figures.
    pub const fn source(self, source: &'static str) -> Network {
        Network { source, ..self }
    }

    /// Ranks and cards of a node. A collective can use all cards.
    pub const fn nodes(self, ranks_per_node: usize, cards: usize) -> Network {
        Network { ranks_per_node, cards, rings: cards, ..self }
    }

    /// A rank's link within its node: µs and GB/s.
    pub const fn within(self, micro_seconds: f64, gigabytes: f64) -> Network {
        Network { within: link(micro_seconds, gigabytes), ..self }
    }

    /// One card between nodes: µs and GB/s.
    pub const fn between(self, micro_seconds: f64, gigabytes: f64) -> Network {
        Network { between: link(micro_seconds, gigabytes), ..self }
    }

    /// `within` is the sum of links to each other rank.
    pub const fn direct(self) -> Network {
        Network { direct: true, ..self }
    }

    /// The largest number of ranks.
    pub const fn at_most(self, most_ranks: usize) -> Network {
        Network { most_ranks, ..self }
    }
}

impl Network {
    /// One kind of link everywhere, each rank with its own, as [`Link`] simulates it between
    /// threads.
    pub fn uniform(link: Link) -> Network {
        let one = Network::new("link").about("one link for each rank").source("given");
        Network {
            within: link,
            between: link,
            pipelined: true,
            efficiency: 1.0,
            ..one
        }
    }

    /// The network of that name, of those on which lab01 predicts collectives.
    pub fn named(name: &str) -> Option<Network> {
        PRESETS.into_iter().find(|network| network.name == name)
    }

    /// The networks on which lab01 predicts collectives.
    pub fn presets() -> [Network; 4] {
        PRESETS
    }

    /// Seconds that a message of `bytes` keeps its sender and its receiver busy, and seconds until
    /// it arrives after that; `leaving` ranks of the node send off it at the same time.
    pub fn message(&self, same_node: bool, bytes: f64, leaving: usize) -> (f64, f64) {
        let link = if same_node { self.within } else { self.between };
        let sharing = if same_node {
            1.0
        } else {
            (leaving as f64 / self.cards as f64).max(1.0)
        };
        let moving = bytes * sharing / link.bandwidth;
        if self.pipelined {
            (moving, link.latency)
        } else {
            (moving + link.latency, 0.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found() {
        for network in Network::presets() {
            assert_eq!(Network::named(network.name), Some(network));
        }
        assert_eq!(Network::named("token-ring"), None);
    }
}
