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

use crate::comm::Link;

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
const NVLINK: f64 = 3.4;
const PCIE: f64 = 5.7;
const NETWORK: f64 = 14.0;

/// The networks that have names: ranks per node, cards, latency in µs and bandwidth in GB/s within
/// a node and between nodes, from GPU to GPU and in one direction.
#[rustfmt::skip]
const NAMED: [Network; 15] = [
    named("dgx-a100", 8, 8, [NVLINK, 300.0], [NETWORK, 25.0],
    "8 GPUs, NVLink 300 GB/s, 8 cards of 25 GB/s",
    "NVIDIA DGX A100 system architecture, 2020: NVLink 3; HDR InfiniBand, 200 Gbit/s per card"),
    named("dgx-h100", 8, 8, [NVLINK, 450.0], [NETWORK, 50.0],
    "8 GPUs, NVLink 450 GB/s, 8 cards of 50 GB/s",
    "NVIDIA DGX H100 data sheet, 2023: NVLink 4; NDR InfiniBand, 400 Gbit/s per card"),
    named("dgx-b200", 8, 8, [NVLINK, 900.0], [NETWORK, 50.0],
    "8 GPUs, NVLink 900 GB/s, 8 cards of 50 GB/s",
    "NVIDIA DGX B200 data sheet, 2024: NVLink 5; 400 Gbit/s per card"),
    // Each tray of 4 GPUs has 4 cards, and 18 trays are one NVLink domain.
    named("nvl72", 72, 72, [NVLINK, 900.0], [NETWORK, 50.0],
    "72 GPUs of one NVLink domain, 900 GB/s, 72 cards of 50 GB/s",
    "NVIDIA DGX GB200 data sheet, 2024: NVLink 5; ConnectX-7, 400 Gbit/s per card"),
    named("dgx-b300", 8, 8, [NVLINK, 900.0], [NETWORK, 100.0],
    "8 GPUs, NVLink 900 GB/s, 8 cards of 100 GB/s",
    "NVIDIA DGX B300 data sheet, 2025: NVLink 5; ConnectX-8, 800 Gbit/s per card"),
    named("p4d", 8, 4, [NVLINK, 300.0], [NETWORK, 12.5],
    "8 GPUs, NVLink 300 GB/s, 4 cards of 12.5 GB/s",
    "Amazon's EC2 P4 page, 2020: p4d.24xlarge, A100, EFA, 4 x 100 Gbit/s"),
    named("frontier", 8, 4, [NVLINK, 50.0], [NETWORK, 25.0],
    "8 dies, Infinity Fabric 50 GB/s, 4 cards of 25 GB/s",
    "OLCF's Frontier guide, 2025: 50 GB/s and more between dies; Slingshot 11"),
    // A link of 64 GB/s to each of the 7 others: 313 GB/s were measured in an all-reduce of all 8,
    // and 48 of two.
    Network { direct: true, ..named("mi300x", 8, 8, [NVLINK, 448.0], [NETWORK, 50.0],
    "8 GPUs, Infinity Fabric 448 GB/s, 8 cards of 50 GB/s",
    "AMD's figures and measurements in stas00/ml-engineering, 2026; 400 Gbit/s per card") },
    Network { direct: true, ..named("mi355x", 8, 8, [NVLINK, 537.6], [NETWORK, 50.0],
    "8 GPUs, Infinity Fabric 537.6 GB/s, 8 cards of 50 GB/s",
    "AMD MI355X data sheet, 2025: 76.8 GB/s to each of 7 others; 400 Gbit/s per card") },
    named("dgx-2", 16, 8, [NVLINK, 150.0], [NETWORK, 12.5],
    "16 GPUs, NVLink 150 GB/s, 8 cards of 12.5 GB/s",
    "NVIDIA's description of DGX-2H in MLPerf Training 0.7, 2020: NVSwitch; EDR InfiniBand"),
    named("cloud-100g", 8, 1, [NVLINK, 300.0], [NETWORK, 12.5],
    "8 GPUs, NVLink 300 GB/s, 1 card of 12.5 GB/s",
    "a common virtual machine: 8 GPUs behind NVSwitch, and 100 Gbit/s for all of them"),
    Network { most_ranks: 8, ..named("nvlink", 8, 1, [NVLINK, 300.0], [NVLINK, 300.0],
    "one node, 8 GPUs, NVLink 300 GB/s",
    "NVIDIA A100 architecture, 2020: 8 A100 behind NVSwitch") },
    named("polaris", 4, 2, [NVLINK, 100.0], [NETWORK, 25.0],
    "4 GPUs per node, NVLink 100 GB/s, 2 cards of 25 GB/s",
    "ALCF's Polaris guide: 4 NVLinks between any two A100; Slingshot 11"),
    // A rank is a tile. Between the two tiles of one GPU 185 GB/s were measured, which a rank
    // rarely has to itself.
    named("aurora", 12, 8, [PCIE, 15.0], [NETWORK, 25.0],
    "12 tiles per node, Xe Link 15 GB/s, 8 cards of 25 GB/s",
    "ALCF's Aurora guide: measured from tile to tile; Slingshot 11"),
    // To NCCL's latency come 10 µs of TCP, its best on such a card.
    named("ethernet", 1, 1, [24.0, 1.25], [24.0, 1.25],
    "one rank per node, 10 Gbit/s Ethernet",
    "10 Gbit/s; latency of TCP: S. Larsen et al., 2007"),
];

const fn named(
    name: &'static str,
    ranks_per_node: usize,
    cards: usize,
    within: [f64; 2],
    between: [f64; 2],
    about: &'static str,
    source: &'static str,
) -> Network {
    Network {
        name,
        about,
        source,
        ranks_per_node,
        most_ranks: MOST_RANKS,
        cards,
        rings: cards,
        within: link(within),
        between: link(between),
        direct: false,
        pipelined: false,
        efficiency: EFFICIENCY,
    }
}

const fn link([micro_seconds, gigabytes]: [f64; 2]) -> Link {
    Link { latency: micro_seconds * MICRO, bandwidth: gigabytes * GB }
}

impl Network {
    /// One kind of link everywhere, each rank with its own, as [`Link`] simulates it between
    /// threads.
    pub fn uniform(link: Link) -> Network {
        Network {
            name: "link",
            about: "one link for each rank",
            source: "given",
            ranks_per_node: 1,
            most_ranks: MOST_RANKS,
            cards: 1,
            rings: 1,
            within: link,
            between: link,
            direct: false,
            pipelined: true,
            efficiency: 1.0,
        }
    }

    /// The network of that name.
    pub fn named(name: &str) -> Option<Network> {
        NAMED.into_iter().find(|network| network.name == name)
    }

    /// The networks on which lab01 predicts collectives.
    pub fn presets() -> [Network; 4] {
        let [.., nvlink, polaris, aurora, ethernet] = NAMED;
        [nvlink, polaris, aurora, ethernet]
    }

    /// All networks that have names: those of big machines first, then [`Network::presets`].
    pub fn all() -> [Network; 15] {
        NAMED
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
        for network in Network::all() {
            assert_eq!(Network::named(network.name), Some(network));
        }
        assert_eq!(Network::named("token-ring"), None);
    }
}
