//! Equal devices on a network.

use super::device::Device;
use shardlab::plan::Network;

/// Equal devices on a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub device: Device,
    pub network: Network,
}

impl Cluster {
    /// A device on the network of that name.
    pub fn new(device: Device, name: &str) -> Option<Cluster> {
        let network = Network::named(name)?;
        Some(Cluster { device, network })
    }

    /// The network of the nodes that a device usually is in.
    pub fn usual_network(device: &str) -> Option<&'static str> {
        let name = match device {
            "a100-40g" | "a100-80g" => "dgx-a100",
            "h100-80g" | "h200-141g" => "dgx-h100",
            "b200-180g" => "dgx-b200",
            "gb200-186g" => "nvl72",
            "b300-288g" => "dgx-b300",
            "mi250x-gcd" => "frontier",
            "mi300x" => "mi300x",
            "mi355x" => "mi355x",
            "v100-32g" => "dgx-2",
            "max-tile" => "aurora",
            "laptop" => "ethernet",
            _ => return None,
        };
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_has_a_usual_network() {
        for device in Device::all() {
            let network = Cluster::usual_network(&device.name);
            let network = network.unwrap_or_else(|| panic!("{} has none", device.name));
            assert!(Cluster::new(device, network).is_some(), "{network}");
        }
    }
}
