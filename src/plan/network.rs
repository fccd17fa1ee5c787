//! Networks in a few numbers: what a message costs within a node and between nodes.
//!
//! The alpha-beta model: a message of S bytes occupies its sender's link for S / bandwidth, its receiver's as long, and arrives
//! `latency` later. Both can send and receive at the same time. On a node, every rank has a link of its own; off it, the
//! ranks share the node's network cards: where more ranks than cards send in the same step, each gets its share. Left out:
//! adding up, the time to start a call, congestion between nodes. Predictions are for comparing algorithms; a real run is
//! slower.

/// What a message costs on one kind of way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds from the last byte's departure to its arrival.
    pub latency: f64,
    /// Bytes a second, in one direction.
    pub bandwidth: f64,
}

/// Nodes of ranks, and the links between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Ranks 0 to p-1 are on the first node, the next p on the second, and so on.
    pub ranks_per_node: usize,
    /// The most ranks there can be.
    pub most_ranks: usize,
    /// Network cards of a node.
    pub cards: usize,
    /// From rank to rank on a node.
    pub within: Link,
    /// From node to node, through one card.
    pub between: Link,
}

/// What the simulator is asked for at most.
pub const MOST_RANKS: usize = 100_000;

const MICRO: f64 = 1e-6;
const GB: f64 = 1e9;

impl Network {
    /// One kind of link everywhere, each rank with its own.
    pub fn uniform(link: Link) -> Network {
        Network {
            name: "link",
            about: "one link for each rank",
            ranks_per_node: 1,
            most_ranks: MOST_RANKS,
            cards: 1,
            within: link,
            between: link,
        }
    }

    /// The networks that have names. Latencies and bandwidths are those of messages between GPUs.
    ///
    /// Sources: latencies are what NCCL's own cost model assumes for a hop of a ring with its protocol for large messages
    /// (`src/graph/tuning.cc`, 2026): 3.4 µs over NVLink, 5.7 µs over PCIe, 14 µs over a network. Each preset's bandwidths
    /// are explained beside it.
    pub fn presets() -> [Network; 4] {
        let nvlink = Link { latency: 3.4 * MICRO, bandwidth: 300.0 * GB };
        [
            // 8 A100 behind NVSwitch: 600 GB/s a GPU, both directions together (NVIDIA A100 architecture, 2020).
            Network {
                name: "nvlink",
                about: "one node, 8 GPUs, 300 GB/s NVLink",
                ranks_per_node: 8,
                most_ranks: 8,
                cards: 1,
                within: nvlink,
                between: nvlink,
            },
            // ALCF's Polaris guide (docs.alcf.anl.gov/polaris): 4 A100 a node, 4 NVLinks of 25 GB/s between any two ("NV4"),
            // 2 Slingshot 11 cards a node, 200 Gbit/s each.
            Network {
                name: "polaris",
                about: "4 GPUs a node, 100 GB/s NVLink, 2 cards of 25 GB/s",
                ranks_per_node: 4,
                most_ranks: MOST_RANKS,
                cards: 2,
                within: Link { latency: 3.4 * MICRO, bandwidth: 100.0 * GB },
                between: Link { latency: 14.0 * MICRO, bandwidth: 25.0 * GB },
            },
            // ALCF's Aurora guide (docs.alcf.anl.gov/aurora): 6 GPUs of 2 tiles a node, a rank a tile; measured 15 GB/s from
            // GPU to GPU in one direction (185 GB/s between the two tiles of one, which a rank seldom has to itself);
            // 8 Slingshot 11 cards. For the latency on a node, NCCL's of PCIe.
            Network {
                name: "aurora",
                about: "12 tiles a node, 15 GB/s Xe Link, 8 cards of 25 GB/s",
                ranks_per_node: 12,
                most_ranks: MOST_RANKS,
                cards: 8,
                within: Link { latency: 5.7 * MICRO, bandwidth: 15.0 * GB },
                between: Link { latency: 14.0 * MICRO, bandwidth: 25.0 * GB },
            },
            // 10 Gbit/s; to NCCL's network latency come 10 µs of TCP, its best on such a card (S. Larsen et al.,
            // Architectural Breakdown of End-to-End Latency in a TCP/IP Network, 2007).
            Network {
                name: "ethernet",
                about: "one rank a node, 10 Gbit/s Ethernet, TCP",
                ranks_per_node: 1,
                most_ranks: MOST_RANKS,
                cards: 1,
                within: Link { latency: 24.0 * MICRO, bandwidth: 1.25 * GB },
                between: Link { latency: 24.0 * MICRO, bandwidth: 1.25 * GB },
            },
        ]
    }

    /// Seconds that `bytes` occupy the sender's link, and seconds until they arrive after that; `leaving` ranks of the node
    /// send off it at the same time.
    pub fn message(&self, same_node: bool, bytes: f64, leaving: usize) -> (f64, f64) {
        if same_node {
            return (bytes / self.within.bandwidth, self.within.latency);
        }
        let sharing = (leaving as f64 / self.cards as f64).max(1.0);
        (bytes * sharing / self.between.bandwidth, self.between.latency)
    }
}
