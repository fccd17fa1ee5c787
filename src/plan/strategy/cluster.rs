//! Devices in nodes, the links between them, and the time of a collective on them.

use super::device::Device;
use crate::comm::Link;
use crate::plan::Network;

/// Equal devices on a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub device: Device,
    pub network: Network,
    /// The part of a link's bandwidth that collectives reach.
    pub efficiency: f64,
    /// Network cards that one collective can use on each node. NCCL builds a ring for each card, so that it can use all. A
    /// single flat ring leaves each node through one card.
    pub rings: usize,
    /// The source of the network's figures.
    pub source: &'static str,
}

/// The networks with names: those of [`Network::presets`], and these.
pub const CLUSTERS: [&str; 9] = [
    "dgx-a100",
    "dgx-h100",
    "dgx-b200",
    "frontier",
    "cloud-100g",
    "nvlink",
    "polaris",
    "aurora",
    "ethernet",
];

const MICRO: f64 = 1e-6;
const GB: f64 = 1e9;

/// A network, and the source of its figures. Latencies are NCCL's, as in [`Network::presets`]. Bandwidths are in one direction.
fn network(name: &str) -> Option<(Network, &'static str)> {
    let node = |name, about, ranks, cards, [within, between]: [f64; 2]| Network {
        name,
        about,
        ranks_per_node: ranks,
        most_ranks: crate::plan::MOST_RANKS,
        cards,
        within: Link {
            latency: 3.4 * MICRO,
            bandwidth: within * GB,
        },
        between: Link {
            latency: 14.0 * MICRO,
            bandwidth: between * GB,
        },
        pipelined: false,
    };
    Some(match name {
        "dgx-a100" => (
            node(
                "dgx-a100",
                "8 GPUs, NVLink 300 GB/s, 8 cards of 25 GB/s",
                8,
                8,
                [300.0, 25.0],
            ),
            "NVIDIA DGX A100 system architecture, 2020: NVLink 3; HDR InfiniBand, 200 Gbit/s per card",
        ),
        "dgx-h100" => (
            node(
                "dgx-h100",
                "8 GPUs, NVLink 450 GB/s, 8 cards of 50 GB/s",
                8,
                8,
                [450.0, 50.0],
            ),
            "NVIDIA DGX H100 data sheet, 2023: NVLink 4; NDR InfiniBand, 400 Gbit/s per card",
        ),
        "dgx-b200" => (
            node(
                "dgx-b200",
                "8 GPUs, NVLink 900 GB/s, 8 cards of 50 GB/s",
                8,
                8,
                [900.0, 50.0],
            ),
            "NVIDIA DGX B200 data sheet, 2024: NVLink 5; 400 Gbit/s per card",
        ),
        "frontier" => (
            node(
                "frontier",
                "8 dies, Infinity Fabric 50 GB/s, 4 cards of 25 GB/s",
                8,
                4,
                [50.0, 25.0],
            ),
            "OLCF's Frontier guide, 2025: 50 GB/s and more between dies; Slingshot 11",
        ),
        "cloud-100g" => (
            node(
                "cloud-100g",
                "8 GPUs, NVLink 300 GB/s, 1 card of 12.5 GB/s",
                8,
                1,
                [300.0, 12.5],
            ),
            "a common virtual machine: 8 GPUs behind NVSwitch, and 100 Gbit/s for all of them",
        ),
        _ => (
            Network::named(name)?,
            match name {
                "nvlink" => "NVIDIA A100 architecture, 2020: 8 A100 behind NVSwitch",
                "polaris" => "ALCF's Polaris guide: 4 NVLinks between any two A100; Slingshot 11",
                "aurora" => "ALCF's Aurora guide: measured from tile to tile; Slingshot 11",
                _ => "10 Gbit/s; latency of TCP: S. Larsen et al., 2007",
            },
        ),
    })
}

/// Ranks that communicate with each other, and how many of them are on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub size: usize,
    pub per_node: usize,
}

impl Cluster {
    /// A device on the network of that name. A measured all-reduce of NCCL reached 235 of NVLink's 300 GB/s
    /// (stas00/ml-engineering, 2026); between nodes it comes closer, 0.9 of a card's bandwidth. One figure stands for both.
    pub fn new(device: Device, name: &str) -> Option<Cluster> {
        let (network, source) = network(name)?;
        let rings = network.cards;
        Some(Cluster {
            device,
            network,
            efficiency: 0.78,
            rings,
            source,
        })
    }

    /// The network that a device usually has.
    pub fn usual_network(device: &str) -> &'static str {
        match device {
            "h100-80g" | "h200-141g" => "dgx-h100",
            "b200-180g" => "dgx-b200",
            "mi250x-gcd" | "mi300x" => "frontier",
            "laptop" => "ethernet",
            _ => "dgx-a100",
        }
    }

    /// The ranks of an axis: `size` of them, each `stride` ranks from the next.
    pub fn group(&self, size: usize, stride: usize) -> Group {
        Group {
            size,
            per_node: (self.network.ranks_per_node / stride).clamp(1, size.max(1)),
        }
    }

    /// Whether all ranks of the group are on one node.
    fn on_one_node(&self, group: Group) -> bool {
        group.per_node == group.size
    }

    /// Bytes per second that each rank of the group sends in a ring. If it leaves its node, it shares the node's cards with the
    /// groups of the other ranks there.
    pub fn bandwidth(&self, group: Group) -> f64 {
        let within = self.network.within.bandwidth;
        let node = self.network.ranks_per_node;
        if self.on_one_node(group) {
            return self.efficiency * within;
        }
        let groups = (node / group.per_node).max(1) as f64;
        let cards = (self.network.cards as f64 / groups).min(self.rings as f64);
        self.efficiency * within.min(cards * self.network.between.bandwidth)
    }

    /// The latencies of one way round a ring.
    fn round_trip(&self, group: Group) -> f64 {
        let nodes = if self.on_one_node(group) {
            0
        } else {
            group.size / group.per_node
        };
        let near = self.network.within.latency;
        let far = self.network.between.latency;
        (group.size - 1).saturating_sub(nodes) as f64 * near + nodes as f64 * far
    }

    /// Seconds of a reduce-scatter or an all-gather of an array of `bytes` in `calls` equal parts.
    pub fn gathers(&self, group: Group, bytes: f64, calls: f64) -> f64 {
        if group.size < 2 {
            return 0.0;
        }
        let share = (group.size - 1) as f64 / group.size as f64;
        share * bytes / self.bandwidth(group) + calls * self.round_trip(group)
    }

    /// Seconds of an all-reduce: a reduce-scatter and an all-gather.
    pub fn all_reduces(&self, group: Group, bytes: f64, calls: f64) -> f64 {
        2.0 * self.gathers(group, bytes, calls)
    }

    /// Seconds of the slowest message between stages that are `stride` ranks apart, on `devices` ranks together. If the pipeline
    /// leaves its node, the ranks of one stage send at the same time, and share the node's cards.
    pub fn sends(&self, bytes: f64, stride: usize, devices: usize) -> f64 {
        let node = self.network.ranks_per_node;
        let (link, shared) = match devices <= node {
            true => (self.network.within, 1.0),
            false => (
                self.network.between,
                (stride.min(node) as f64 / self.network.cards as f64).max(1.0),
            ),
        };
        link.latency + bytes * shared / (self.efficiency * link.bandwidth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dgx() -> Cluster {
        Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap()
    }

    #[test]
    fn every_name_has_a_network() {
        for name in CLUSTERS {
            assert_eq!(
                Cluster::new(Device::named("a100-80g").unwrap(), name)
                    .unwrap()
                    .network
                    .name,
                name
            );
        }
        for device in super::super::DEVICES {
            assert!(
                CLUSTERS.contains(&Cluster::usual_network(device)),
                "{device}"
            );
        }
    }

    #[test]
    fn groups_share_the_cards_of_a_node() {
        let dgx = dgx();
        let gb = |size, stride| dgx.bandwidth(dgx.group(size, stride)) / GB / dgx.efficiency;
        assert_eq!(gb(8, 1), 300.0); // on one node
        assert_eq!(gb(64, 1), 200.0); // whole nodes: all eight cards
        assert_eq!(gb(64, 8), 25.0); // one rank of each node: its own card
        assert_eq!(gb(64, 4), 50.0);
        let flat = Cluster {
            rings: 1,
            ..dgx.clone()
        };
        assert_eq!(
            flat.bandwidth(flat.group(64, 1)) / flat.efficiency,
            25.0 * GB
        );
    }

    /// On links of one kind it is the textbook's ring, which lab01 simulates.
    #[test]
    fn a_ring_is_the_simulators_ring() {
        use crate::comm::algorithms::{Algorithm, Collective, Task};
        let link = Link {
            latency: 3e-6,
            bandwidth: 8e9,
        };
        let network = Network {
            pipelined: false,
            ..Network::uniform(link)
        };
        let cluster = Cluster {
            network,
            efficiency: 1.0,
            rings: 1,
            ..dgx()
        };
        for ranks in [2, 8, 64] {
            let task = Task::new(
                Collective::AllReduce,
                Algorithm::Ring,
                ranks,
                1000 * ranks,
                4,
                0,
            )
            .unwrap();
            let simulated = crate::plan::simulate(&task, 4, &cluster.network);
            let is = cluster.all_reduces(cluster.group(ranks, 1), 4000.0 * ranks as f64, 1.0);
            // The formula counts a ring's n hops once, and the simulator n-1 of them.
            assert!(
                is >= simulated && is - simulated <= 2.0 * link.latency + 1e-12,
                "{ranks}: {is}, {simulated}"
            );
        }
    }
}
