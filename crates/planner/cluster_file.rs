//! A reader's own cluster, in a TOML file such as [`EXAMPLE`].

use crate::{Cluster, Device};
use serde::Deserialize;
use shapes::error::BadInput;
use shapes::files;
use shapes::link::Link;
use shapes::network::{MOST_RANKS, Network};
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    device: DeviceTable,
    network: NetworkTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceTable {
    memory_gb: f64,
    tflops: f64,
    bandwidth_gb_s: f64,
    matmul: Option<f64>,
    streaming: Option<f64>,
    host_memory_gb: Option<f64>,
    host_gb_s: Option<f64>,
    host_memory_gb_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkTable {
    per_node: usize,
    cards: Option<usize>,
    within_gb_s: f64,
    within_us: Option<f64>,
    between_gb_s: Option<f64>,
    between_us: Option<f64>,
    efficiency: Option<f64>,
}

/// Reads a cluster. Fields that may be left out have the values of [`EXAMPLE`]'s comments.
pub fn read(path: &Path) -> Result<Cluster, BadInput> {
    let name = path.display();
    let text = files::text(path, files::LIST).map_err(|error| {
        BadInput::new(format!("{name} cannot be read: {error}"), "give --cluster a TOML file")
    })?;
    parse(&text).map_err(|what| {
        let help = "a cluster has a table [device] with memory_gb, tflops and bandwidth_gb_s, and a table [network] with \
                    per_node and within_gb_s; lab11 --help-cluster prints one to begin with";
        BadInput::new(format!("{name}: {what}"), help)
    })
}

fn parse(text: &str) -> Result<Cluster, String> {
    let File { device, network } = toml::from_str(text).map_err(|error| error.to_string())?;
    let cards = network.cards.unwrap_or(1);
    let matmul = device.matmul.unwrap_or(0.7);
    let streaming = device.streaming.unwrap_or(0.8);
    let host_memory = device.host_memory_gb.unwrap_or(64.0);
    let host_link = device.host_gb_s.unwrap_or(16.0);
    let host_bandwidth = device.host_memory_gb_s.unwrap_or(50.0);
    let within_us = network.within_us.unwrap_or(3.4);
    let between_us = network.between_us.unwrap_or(14.0);
    let between = network.between_gb_s.unwrap_or(network.within_gb_s);
    let efficiency = network.efficiency.unwrap_or(0.78);
    // Far from where a product of them has no number.
    let any = 1e-6..=1e9;
    let part = 1e-6..=1.0;
    let ranks = 1.0..=MOST_RANKS as f64;
    for (key, value, range) in [
        ("memory_gb", device.memory_gb, &any),
        ("tflops", device.tflops, &any),
        ("bandwidth_gb_s", device.bandwidth_gb_s, &any),
        ("matmul", matmul, &part),
        ("streaming", streaming, &part),
        ("host_memory_gb", host_memory, &any),
        ("host_gb_s", host_link, &any),
        ("host_memory_gb_s", host_bandwidth, &any),
        ("per_node", network.per_node as f64, &ranks),
        ("cards", cards as f64, &ranks),
        ("within_gb_s", network.within_gb_s, &any),
        ("within_us", within_us, &any),
        ("between_gb_s", between, &any),
        ("between_us", between_us, &any),
        ("efficiency", efficiency, &part),
    ] {
        if !range.contains(&value) {
            let least = range.start();
            let most = range.end();
            return Err(format!("{key} = {value:?} must be from {least:?} to {most:?}"));
        }
    }
    let within = Link {
        latency: 1e-6 * within_us,
        bandwidth: 1e9 * network.within_gb_s,
    };
    Ok(Cluster {
        device: Device {
            name: "your device",
            network: "yours",
            source: "your file",
            memory: 1e9 * device.memory_gb,
            free: Device::FREE,
            peak: 1e12 * device.tflops,
            matmul,
            bandwidth: 1e9 * device.bandwidth_gb_s,
            streaming,
            host_memory: 1e9 * host_memory,
            host_link: 1e9 * host_link,
            host_bandwidth: 1e9 * host_bandwidth,
        },
        network: Network {
            name: "yours",
            about: "from your file",
            source: "your file",
            ranks_per_node: network.per_node,
            cards,
            rings: cards,
            between: Link { latency: 1e-6 * between_us, bandwidth: 1e9 * between },
            pipelined: false,
            efficiency,
            ..Network::uniform(within)
        },
    })
}

/// A file to begin with.
pub const EXAMPLE: &str = "[device]
memory_gb = 24
tflops = 165          # dense, in 16 bits, from the data sheet
bandwidth_gb_s = 1008 # of its memory
# matmul = 0.7, streaming = 0.8: the parts of both that a training reaches
# host_memory_gb = 64, host_gb_s = 16, host_memory_gb_s = 50: of the host, this device's share of each

[network]
per_node = 4
within_gb_s = 25      # from rank to rank on a node, in one direction
between_gb_s = 12.5   # of one card
cards = 1
# within_us = 3.4, between_us = 14: latencies; efficiency = 0.78
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_cluster() {
        let cluster = parse(EXAMPLE).unwrap();
        assert_eq!(
            (cluster.device.memory, cluster.network.ranks_per_node, cluster.network.rings),
            (24e9, 4, 1)
        );
        assert_eq!((cluster.network.between.bandwidth, cluster.device.matmul), (12.5e9, 0.7));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, says) in [
            ("memory_gb = 24", "memory_gb = -1", "memory_gb = -1.0 must be from 1e-6 to"),
            ("memory_gb = 24", "memory_gb = \"24\"", "line 2, column 13"),
            ("memory_gb = 24", "memory = 24", "unknown field"),
            ("tflops = 165 ", "tflops 165 ", "line 3"),
            ("per_node = 4", "per_node = 0", "per_node = 0.0 must be from 1.0"),
            ("tflops = 165 ", "tflops = 1e300 ", "tflops = 1e300 must be from"),
            ("tflops = 165 ", "tflops = nan ", "tflops = NaN must be from"),
            ("cards = 1", "efficiency = 1.5", "efficiency = 1.5 must be from 1e-6 to 1.0"),
            ("memory_gb = 24", "", "missing field"),
        ] {
            let what = parse(&EXAMPLE.replace(from, to)).unwrap_err();
            assert!(what.contains(says), "{to}: {what}");
        }
    }
}
