//! Networks in a few numbers: the time of a message within a node and between nodes.
//!
//! The alpha-beta model: a message of S bytes takes latency + S / bandwidth. A rank sends one message at a time and receives one
//! at a time, and can do both at once. Within a node, every rank has its own link. Between nodes, the ranks of a node share its
//! network cards: if more ranks than cards send in the same round, they divide the bandwidth. The model leaves out additions
//! and congestion between nodes, so a real run is slower. Predictions are for comparing algorithms.
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, 2005.

use crate::comm::Link;

/// Nodes of ranks, and the links between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Ranks 0 to p-1 are on the first node, the next p on the second, and so on.
    pub ranks_per_node: usize,
    /// The largest number of ranks.
    pub most_ranks: usize,
    /// Network cards of a node.
    pub cards: usize,
    /// From rank to rank on a node.
    pub within: Link,
    /// From node to node, through one card.
    pub between: Link,
    /// Whether a rank can send the next message while the latency of the last one passes.
    pub pipelined: bool,
}

/// The most ranks that the simulator accepts.
pub const MOST_RANKS: usize = 100_000;

const MICRO: f64 = 1e-6;
const GB: f64 = 1e9;

impl Network {
    /// One kind of link everywhere, each rank with its own, as [`Link`] simulates it between threads.
    pub fn uniform(link: Link) -> Network {
        Network {
            name: "link",
            about: "one link for each rank",
            ranks_per_node: 1,
            most_ranks: MOST_RANKS,
            cards: 1,
            within: link,
            between: link,
            pipelined: true,
        }
    }

    /// The names of [`Network::presets`].
    pub const NAMES: [&'static str; 4] = ["nvlink", "polaris", "aurora", "ethernet"];

    /// The preset of that name.
    pub fn named(name: &str) -> Option<Network> {
        Network::presets()
            .into_iter()
            .find(|network| network.name == name)
    }

    /// The networks that have names. Latencies and bandwidths are those of messages between GPUs.
    ///
    /// Sources: latencies are what NCCL's own cost model assumes for a hop of a ring with its protocol for large messages
    /// (`src/graph/tuning.cc`, 2026): 3.4 µs over NVLink, 5.7 µs over PCIe, 14 µs over a network. Most of that is software,
    /// which is busy with one message at a time. Each preset's bandwidths are explained beside it.
    pub fn presets() -> [Network; 4] {
        let nvlink = Link {
            latency: 3.4 * MICRO,
            bandwidth: 300.0 * GB,
        };
        [
            // 8 A100 behind NVSwitch: 600 GB/s a GPU, both directions together (NVIDIA A100 architecture, 2020).
            Network {
                name: "nvlink",
                about: "one node, 8 GPUs, NVLink 300 GB/s",
                ranks_per_node: 8,
                most_ranks: 8,
                cards: 1,
                within: nvlink,
                between: nvlink,
                pipelined: false,
            },
            // ALCF's Polaris guide (docs.alcf.anl.gov/polaris): 4 A100 a node, 4 NVLinks of 25 GB/s between any two ("NV4"),
            // 2 Slingshot 11 cards a node, 200 Gbit/s each.
            Network {
                name: "polaris",
                about: "4 GPUs per node, NVLink 100 GB/s, 2 cards of 25 GB/s",
                ranks_per_node: 4,
                most_ranks: MOST_RANKS,
                cards: 2,
                within: Link {
                    latency: 3.4 * MICRO,
                    bandwidth: 100.0 * GB,
                },
                between: Link {
                    latency: 14.0 * MICRO,
                    bandwidth: 25.0 * GB,
                },
                pipelined: false,
            },
            // ALCF's Aurora guide (docs.alcf.anl.gov/aurora): 6 GPUs of 2 tiles a node, a rank a tile; measured 15 GB/s from
            // GPU to GPU in one direction (185 GB/s between the two tiles of one, which a rank rarely has to itself);
            // 8 Slingshot 11 cards. For the latency on a node, NCCL's of PCIe.
            Network {
                name: "aurora",
                about: "12 tiles per node, Xe Link 15 GB/s, 8 cards of 25 GB/s",
                ranks_per_node: 12,
                most_ranks: MOST_RANKS,
                cards: 8,
                within: Link {
                    latency: 5.7 * MICRO,
                    bandwidth: 15.0 * GB,
                },
                between: Link {
                    latency: 14.0 * MICRO,
                    bandwidth: 25.0 * GB,
                },
                pipelined: false,
            },
            // 10 Gbit/s; to NCCL's network latency come 10 µs of TCP, its best on such a card (S. Larsen et al.,
            // Architectural Breakdown of End-to-End Latency in a TCP/IP Network, 2007).
            Network {
                name: "ethernet",
                about: "one rank per node, 10 Gbit/s Ethernet",
                ranks_per_node: 1,
                most_ranks: MOST_RANKS,
                cards: 1,
                within: Link {
                    latency: 24.0 * MICRO,
                    bandwidth: 1.25 * GB,
                },
                between: Link {
                    latency: 24.0 * MICRO,
                    bandwidth: 1.25 * GB,
                },
                pipelined: false,
            },
        ]
    }

    /// Seconds that a message of `bytes` keeps its sender and its receiver busy, and seconds until it arrives after that;
    /// `leaving` ranks of the node send off it at the same time.
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
    fn presets_have_the_names_that_are_offered() {
        assert_eq!(
            Network::presets().map(|network| network.name),
            Network::NAMES
        );
        assert_eq!(
            Network::named("polaris").map(|network| network.ranks_per_node),
            Some(4)
        );
        assert_eq!(Network::named("token-ring"), None);
    }
}
