//! A reader's own cluster, in a TOML file such as [`EXAMPLE`].

use super::super::strategy::{Cluster, Device};
use serde::Deserialize;
use shardlab::comm::Link;
use shardlab::error::BadInput;
use shardlab::files;
use shardlab::plan::{MOST_RANKS, Network};
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
    name: Option<String>,
    memory_gb: f64,
    tflops: f64,
    bandwidth_gb_s: f64,
    matmul: Option<f64>,
    streaming: Option<f64>,
    host_memory_gb: Option<f64>,
    host_gb_s: Option<f64>,
    host_memory_gb_s: Option<f64>,
    disk_gb: Option<f64>,
    disk_read_gb_s: Option<f64>,
    disk_write_gb_s: Option<f64>,
    price_per_hour: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkTable {
    per_node: usize,
    within_gb_s: f64,
    within_us: Option<f64>,
    between_gb_s: Option<f64>,
    between_us: Option<f64>,
    cards: Option<usize>,
    rings: Option<usize>,
    direct: Option<bool>,
    efficiency: Option<f64>,
}

/// The least and the most of a cluster's figures, in their units.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e9;

/// Reads a cluster. Fields that may be left out have the values of [`EXAMPLE`]'s comments.
pub fn read(path: &Path) -> Result<Cluster, BadInput> {
    let name = path.display();
    let text = files::text(path, files::LIST).map_err(|error| {
        BadInput::new(format!("{name} cannot be read: {error}"), "give --cluster a TOML file")
    })?;
    parse(&text).map_err(|(line, what)| {
        let line = line.map_or(String::new(), |line| format!(", line {line}"));
        let help = "a cluster has a table [device] with memory_gb, tflops and bandwidth_gb_s, and a table [network] with \
                    per_node and within_gb_s; lab11 --help-cluster prints one to begin with";
        BadInput::new(format!("{name}{line}: {what}"), help)
    })
}

type Wrong = (Option<usize>, String);

fn parse(text: &str) -> Result<Cluster, Wrong> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        (line, error.message().to_string())
    })?;
    let device = file.device;
    let network = file.network;
    let find = |key: &str| {
        text.lines()
            .position(|line| line.trim_start().starts_with(key))
            .map(|at| at + 1)
    };
    let positive = |key: &str, value: f64| {
        if (LEAST..=MOST).contains(&value) {
            Ok(value)
        } else if value > 0.0 {
            Err((find(key), format!("{key} = {value:?} must be from {LEAST:?} to {MOST:?}")))
        } else {
            Err((find(key), format!("{key} = {value} must be more than 0")))
        }
    };
    let or_none = |key: &str, value: Option<f64>| match value {
        None | Some(0.0) => Ok(0.0),
        Some(value) => positive(key, value),
    };
    let share = |key: &str, value: Option<f64>, usual: f64| match value.unwrap_or(usual) {
        value if value > 0.0 && value <= 1.0 => Ok(value),
        value => {
            Err((find(key), format!("{key} = {value} must be a part of the peak, from 0 to 1")))
        }
    };
    let count = |key: &str, value: usize| match value {
        1..=MOST_RANKS => Ok(value),
        _ => Err((find(key), format!("{key} = {value} must be from 1 to {MOST_RANKS}"))),
    };
    let within = positive("within_gb_s", network.within_gb_s)?;
    let cards = count("cards", network.cards.unwrap_or(1))?;
    let micro = |key: &str, value: Option<f64>, usual: f64| {
        positive(key, value.unwrap_or(usual)).map(|us| 1e-6 * us)
    };
    Ok(Cluster {
        device: Device {
            name: device.name.unwrap_or_else(|| "your device".into()),
            memory: 1e9 * positive("memory_gb", device.memory_gb)?,
            free: Device::FREE,
            peak: 1e12 * positive("tflops", device.tflops)?,
            matmul: share("matmul", device.matmul, 0.7)?,
            bandwidth: 1e9 * positive("bandwidth_gb_s", device.bandwidth_gb_s)?,
            streaming: share("streaming", device.streaming, 0.8)?,
            host_memory: 1e9 * positive("host_memory_gb", device.host_memory_gb.unwrap_or(64.0))?,
            host_link: 1e9 * positive("host_gb_s", device.host_gb_s.unwrap_or(16.0))?,
            host_bandwidth: 1e9
                * positive("host_memory_gb_s", device.host_memory_gb_s.unwrap_or(50.0))?,
            disk: 1e9 * or_none("disk_gb", device.disk_gb)?,
            disk_read: 1e9 * positive("disk_read_gb_s", device.disk_read_gb_s.unwrap_or(1.0))?,
            disk_write: 1e9 * positive("disk_write_gb_s", device.disk_write_gb_s.unwrap_or(0.5))?,
            price: or_none("price_per_hour", device.price_per_hour)?,
            source: "your file",
        },
        network: Network {
            name: "yours",
            about: "from your file",
            source: "your file",
            ranks_per_node: count("per_node", network.per_node)?,
            most_ranks: MOST_RANKS,
            cards,
            rings: count("rings", network.rings.unwrap_or(cards))?,
            within: Link {
                latency: micro("within_us", network.within_us, 3.4)?,
                bandwidth: 1e9 * within,
            },
            between: Link {
                latency: micro("between_us", network.between_us, 14.0)?,
                bandwidth: 1e9
                    * positive(
                        "between_gb_s",
                        network.between_gb_s.unwrap_or(network.within_gb_s),
                    )?,
            },
            direct: network.direct.unwrap_or(false),
            pipelined: false,
            efficiency: share("efficiency", network.efficiency, 0.78)?,
        },
    })
}

/// A file to begin with.
pub const EXAMPLE: &str = "[device]
name = \"my GPU\"
memory_gb = 24
tflops = 165          # dense, in 16 bits, from the data sheet
bandwidth_gb_s = 1008 # of its memory
# matmul = 0.7, streaming = 0.8: the parts of both that a training reaches
# host_memory_gb = 64, host_gb_s = 16, host_memory_gb_s = 50: of the host, this device's share of each; price_per_hour = 0
# disk_gb = 0, disk_read_gb_s = 1, disk_write_gb_s = 0.5: of the node's disks, its share as well

[network]
per_node = 4
within_gb_s = 25      # from rank to rank on a node, in one direction
between_gb_s = 12.5   # of one card
cards = 1
# within_us = 3.4, between_us = 14: latencies; efficiency = 0.78; direct = true: a link to each other rank of the node
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
    fn what_is_wrong_has_a_line() {
        for (from, to, line, says) in [
            ("memory_gb = 24", "memory_gb = -1", 3, "memory_gb = -1 must be more than 0"),
            ("memory_gb = 24", "memory_gb = \"24\"", 3, "expected"),
            ("memory_gb = 24", "memory = 24", 3, "unknown field"),
            ("tflops = 165 ", "tflops 165 ", 4, "="),
            ("per_node = 4", "per_node = 0", 11, "per_node = 0 must be from 1"),
            ("tflops = 165 ", "tflops = 1e300 ", 4, "tflops = 1e300 must be from"),
            ("cards = 1", "efficiency = 1.5", 14, "efficiency = 1.5 must be a part"),
        ] {
            let (at, what) = parse(&EXAMPLE.replace(from, to)).unwrap_err();
            assert!(at == Some(line) && what.contains(says), "{to}: {at:?} {what}");
        }
        let (_, what) = parse("[device]\nmemory_gb = 1").unwrap_err();
        assert!(what.contains("missing field"), "{what}");
    }

    #[test]
    fn a_file_that_is_not_there_is_told() {
        let error = read(Path::new("no/such.toml")).unwrap_err();
        assert!(error.what.contains("no/such.toml cannot be read"), "{error}");
    }
}
