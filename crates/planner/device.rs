//! Devices: their speed, their memory and their bandwidths, from data sheets; and equal devices
//! on a network.

use crate::networks;
use shapes::network::Network;

/// One device, as a rank sees it: a GPU, a half of one, or a share of a processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub name: &'static str,
    /// The network of the nodes that it usually is in.
    pub network: &'static str,
    /// The source of the figures.
    pub source: &'static str,
    /// Bytes of memory. Data sheets round: an H100 of "80 GB" has 85.0e9 bytes.
    pub memory: f64,
    /// The part of its memory that a plan leaves free: for the runtime's own buffers and for
    /// fragmentation.
    pub free: f64,
    /// FLOPs per second of the data sheet: dense, in 16 bits.
    pub peak: f64,
    /// The part of the peak that a large layer's matrix products reach.
    pub matmul: f64,
    /// Bytes per second of its memory.
    pub bandwidth: f64,
    /// The part of the bandwidth that operations between the products reach.
    pub streaming: f64,
    /// Bytes of its host's memory, for what is offloaded.
    pub host_memory: f64,
    /// Bytes per second between device and host, in one direction, when all devices of the node use
    /// it.
    pub host_link: f64,
    /// Bytes per second of the host's memory: this device's share of a node's.
    pub host_bandwidth: f64,
}

/// The devices with names: name, usual network and source; GiB of memory; TFLOP/s and the part of
/// them that is reached, TB/s and the part that is reached; GB of the host's memory, GB/s to it and
/// of it.
///
/// `matmul`: a layer of a 22-billion-parameter GPT reaches 0.70 of an A100's peak (fitted to table
/// 4 of Korthikanti et al., arXiv 2205.05198, together with the 0.8 of its memory's bandwidth).
/// This is 0.84 of the most that any matrix product was measured to reach. For the other devices it
/// is 0.84 of that measured maximum: stas00/ml-engineering, "Maximum Achievable Matmul FLOPS"
/// (August 2026). For a tile of the Max 1550 it is 0.84 of what ALCF measures on all twelve tiles
/// of an Aurora node at once, 207 TFLOP/s each, and its memory reaches 1 TB/s there.
///
/// The host's figures are a device's share of its node's, because all devices offload at once: on a
/// DGX A100 two share an uplink of 32 GB/s, and on Frontier the host's memory is slower than all
/// links to it; a DGX-2's 16 devices got 64 GB/s together (DeepSpeed's slides on ZeRO-Infinity,
/// SC21). Of the memory's data sheet 0.8 count.
///
/// No measured maximum was found for three devices of 2025: GB200 and B300 have B200's part here,
/// and MI355X MI300X's.
///
/// Memory is what PyTorch reported, in messages of public issues and logs that were read in
/// November 2026.
const DEVICES: [Device; 13] = [
    device(
        ["a100-40g", "dgx-a100", "NVIDIA A100 data sheet, 2021"],
        39.4,
        [312.0, 0.73, 1.555, 0.8],
        [128.0, 16.0, 41.0],
    ),
    device(
        ["a100-80g", "dgx-a100", "NVIDIA A100 data sheet, 2021"],
        79.1,
        [312.0, 0.73, 2.039, 0.8],
        [256.0, 16.0, 41.0],
    ),
    device(
        ["h100-80g", "dgx-h100", "NVIDIA H100 data sheet (SXM), 2023"],
        79.1,
        [989.0, 0.675, 3.35, 0.8],
        [256.0, 55.0, 61.0],
    ),
    device(
        ["h200-141g", "dgx-h100", "NVIDIA H200 data sheet, 2024"],
        139.7,
        [989.0, 0.675, 4.8, 0.8],
        [256.0, 55.0, 61.0],
    ),
    device(
        ["b200-180g", "dgx-b200", "NVIDIA DGX B200 data sheet, 2024"],
        178.3,
        [2250.0, 0.65, 8.0, 0.8],
        [256.0, 55.0, 72.0],
    ),
    device(
        ["gb200-186g", "nvl72", "NVIDIA GB200 NVL72 data sheet, 2024"],
        184.3,
        [2500.0, 0.65, 8.0, 0.8],
        [240.0, 225.0, 205.0],
    ),
    device(
        ["b300-288g", "dgx-b300", "NVIDIA HGX B300 data sheet, 2025"],
        267.6,
        [2250.0, 0.65, 8.0, 0.8],
        [256.0, 55.0, 72.0],
    ),
    device(
        ["mi250x-gcd", "frontier", "half of an AMD MI250X; OLCF's Frontier guide"],
        63.9,
        [191.5, 0.6, 1.638, 0.8],
        [64.0, 25.6, 20.5],
    ),
    device(
        ["mi300x", "mi300x", "AMD MI300X data sheet, 2023"],
        191.6,
        [1307.0, 0.43, 5.3, 0.8],
        [192.0, 55.0, 61.0],
    ),
    device(
        ["mi355x", "mi355x", "AMD MI355X data sheet, 2025"],
        287.9,
        [2516.0, 0.43, 8.0, 0.8],
        [192.0, 55.0, 61.0],
    ),
    device(
        ["v100-32g", "dgx-2", "NVIDIA V100 data sheet (SXM2), 2020"],
        31.7,
        [125.0, 0.7, 0.9, 0.8],
        [94.0, 4.0, 13.0],
    ),
    device(
        ["max-tile", "aurora", "half of an Intel Max 1550; ALCF's Aurora guide"],
        63.9,
        [419.0, 0.415, 1.638, 0.61],
        [91.0, 26.5, 37.0],
    ),
    device(
        ["laptop", "ethernet", "one core with AVX-512, in f32"],
        7.45,
        [0.1, 0.7, 0.03, 0.8],
        [8.0, 10.0, 10.0],
    ),
];

const fn device(
    [name, network, source]: [&'static str; 3],
    gibibytes: f64,
    [tera_flops, matmul, terabytes_per_second, streaming]: [f64; 4],
    [host_gigabytes, host_link, host_bandwidth]: [f64; 3],
) -> Device {
    Device {
        name,
        network,
        source,
        memory: gibibytes * (1 << 30) as f64,
        free: Device::FREE,
        peak: 1e12 * tera_flops,
        matmul,
        bandwidth: 1e12 * terabytes_per_second,
        streaming,
        host_memory: 1e9 * host_gigabytes,
        host_link: 1e9 * host_link,
        host_bandwidth: 1e9 * host_bandwidth,
    }
}

impl Device {
    /// The part of a device's memory that is left free, unless one says otherwise.
    pub const FREE: f64 = 0.1;

    /// All devices that have names.
    pub fn all() -> [Device; 13] {
        DEVICES
    }

    /// The device of that name.
    pub fn named(name: &str) -> Option<Device> {
        DEVICES.into_iter().find(|device| device.name == name)
    }

    /// Bytes that a plan may use.
    pub fn room(&self) -> f64 {
        (1.0 - self.free) * self.memory
    }

    /// Seconds of matrix products whose smallest side is `side`. Thin products are slower, because
    /// a device computes tiles and loads its operands more often.
    pub fn computes(&self, flops: f64, side: f64) -> f64 {
        flops / (self.peak * self.matmul * side / (side + 32.0))
    }

    /// Seconds of operations that only move bytes.
    pub fn streams(&self, bytes: f64) -> f64 {
        bytes / (self.bandwidth * self.streaming)
    }
}

/// Equal devices on a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub device: Device,
    pub network: Network,
}

impl Cluster {
    /// A device on the network of that name.
    pub fn new(device: Device, name: &str) -> Option<Cluster> {
        let network = networks::network(name)?;
        Some(Cluster { device, network })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_device() {
        for device in Device::all() {
            assert_eq!(Device::named(device.name).as_ref(), Some(&device));
            assert!(Cluster::new(device.clone(), device.network).is_some(), "{}", device.name);
            assert!(
                device.room() < device.memory
                    && device.computes(1.0, 1e3) > 1.0 / device.peak
                    && !device.source.is_empty()
            );
        }
        assert_eq!(Device::named("abacus"), None);
    }

    /// What PyTorch prints of these devices, in whole tenths of a GiB: 79.1 to 79.6 for a card of
    /// 80 GB.
    #[test]
    fn memory_is_what_a_program_finds() {
        for (name, [least, most]) in [
            ("a100-40g", [39.4, 39.6]),
            ("a100-80g", [79.1, 79.4]),
            ("h100-80g", [79.1, 79.7]),
            ("h200-141g", [139.7, 139.9]),
            ("b200-180g", [178.3, 178.4]),
        ] {
            let device = Device::named(name).unwrap();
            let gib = device.memory / f64::from(1 << 30);
            assert!(least <= gib && gib <= most, "{name}: {gib}");
            assert!((device.room() / device.memory - 0.9).abs() < 1e-12);
        }
    }
}
