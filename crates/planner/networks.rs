//! The networks of big machines, beside the four on which lab01 predicts.

use shapes::network::{NETWORK, NVLINK, Network};

/// Ranks and cards of a node, latency in µs and bandwidth in GB/s within a node and between nodes,
/// from GPU to GPU and in one direction.
const NETWORKS: [Network; 11] = [
    Network::new("dgx-a100")
        .about("8 GPUs, NVLink 300 GB/s, 8 cards of 25 GB/s")
        .source("NVIDIA DGX A100 system architecture, 2020: NVLink 3; 200 Gbit/s per card")
        .nodes(8, 8)
        .within(NVLINK, 300.0)
        .between(NETWORK, 25.0),
    Network::new("dgx-h100")
        .about("8 GPUs, NVLink 450 GB/s, 8 cards of 50 GB/s")
        .source("NVIDIA DGX H100 data sheet, 2023: NVLink 4; NDR InfiniBand, 400 Gbit/s per card")
        .nodes(8, 8)
        .within(NVLINK, 450.0)
        .between(NETWORK, 50.0),
    Network::new("dgx-b200")
        .about("8 GPUs, NVLink 900 GB/s, 8 cards of 50 GB/s")
        .source("NVIDIA DGX B200 data sheet, 2024: NVLink 5; 400 Gbit/s per card")
        .nodes(8, 8)
        .within(NVLINK, 900.0)
        .between(NETWORK, 50.0),
    // Each tray of 4 GPUs has 4 cards, and 18 trays are one NVLink domain.
    Network::new("nvl72")
        .about("72 GPUs of one NVLink domain, 900 GB/s, 72 cards of 50 GB/s")
        .source("NVIDIA DGX GB200 data sheet, 2024: NVLink 5; ConnectX-7, 400 Gbit/s per card")
        .nodes(72, 72)
        .within(NVLINK, 900.0)
        .between(NETWORK, 50.0),
    Network::new("dgx-b300")
        .about("8 GPUs, NVLink 900 GB/s, 8 cards of 100 GB/s")
        .source("NVIDIA DGX B300 data sheet, 2025: NVLink 5; ConnectX-8, 800 Gbit/s per card")
        .nodes(8, 8)
        .within(NVLINK, 900.0)
        .between(NETWORK, 100.0),
    Network::new("p4d")
        .about("8 GPUs, NVLink 300 GB/s, 4 cards of 12.5 GB/s")
        .source("Amazon's EC2 P4 page, 2020: p4d.24xlarge, A100, EFA, 4 x 100 Gbit/s")
        .nodes(8, 4)
        .within(NVLINK, 300.0)
        .between(NETWORK, 12.5),
    Network::new("frontier")
        .about("8 dies, Infinity Fabric 50 GB/s, 4 cards of 25 GB/s")
        .source("OLCF's Frontier guide, 2025: 50 GB/s and more between dies; Slingshot 11")
        .nodes(8, 4)
        .within(NVLINK, 50.0)
        .between(NETWORK, 25.0),
    // A link of 64 GB/s to each of the 7 others: 313 GB/s were measured in an all-reduce of all 8,
    // and 48 of two.
    Network::new("mi300x")
        .about("8 GPUs, Infinity Fabric 448 GB/s, 8 cards of 50 GB/s")
        .source("AMD, and measured in stas00/ml-engineering, 2026; 400 Gbit/s per card")
        .nodes(8, 8)
        .within(NVLINK, 448.0)
        .between(NETWORK, 50.0)
        .direct(),
    Network::new("mi355x")
        .about("8 GPUs, Infinity Fabric 537.6 GB/s, 8 cards of 50 GB/s")
        .source("AMD MI355X data sheet, 2025: 76.8 GB/s to each of 7 others; 400 Gbit/s per card")
        .nodes(8, 8)
        .within(NVLINK, 537.6)
        .between(NETWORK, 50.0)
        .direct(),
    Network::new("dgx-2")
        .about("16 GPUs, NVLink 150 GB/s, 8 cards of 12.5 GB/s")
        .source("DGX-2H in MLPerf Training 0.7, 2020: NVSwitch; EDR InfiniBand")
        .nodes(16, 8)
        .within(NVLINK, 150.0)
        .between(NETWORK, 12.5),
    Network::new("cloud-100g")
        .about("8 GPUs, NVLink 300 GB/s, 1 card of 12.5 GB/s")
        .source("a common virtual machine: 8 GPUs behind NVSwitch, one card for all")
        .nodes(8, 1)
        .within(NVLINK, 300.0)
        .between(NETWORK, 12.5),
];

/// All networks that have names: those of big machines first.
pub fn networks() -> impl Iterator<Item = Network> {
    NETWORKS.into_iter().chain(Network::presets())
}

/// The network of that name.
pub fn network(name: &str) -> Option<Network> {
    networks().find(|network| network.name == name)
}
