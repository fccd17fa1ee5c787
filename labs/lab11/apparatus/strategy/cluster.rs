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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_has_a_usual_network() {
        for device in Device::all() {
            let network = Cluster::usual_network(&device.name);
            assert!(Cluster::new(device, network).is_some(), "{network}");
        }
    }
}
