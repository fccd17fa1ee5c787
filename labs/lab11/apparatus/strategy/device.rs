//! Devices: their speed, their memory and their bandwidths, from data sheets.

use super::Load;

/// One device, as a rank sees it: a GPU, a half of one, or a share of a processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub name: String,
    /// Bytes of memory.
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
    /// Bytes of the node's disks, and their bytes per second: this device's share.
    pub disk: f64,
    pub disk_read: f64,
    pub disk_write: f64,
    /// US dollars per hour.
    pub price: f64,
    /// The source of the figures.
    pub source: &'static str,
}

/// Where the bytes of a device's memory are from. Data sheets round: an H100 of "80 GB" has 85.0e9
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    /// GiB, as PyTorch reports them (`GPU 0 has a total capacity of ... GiB`). Where reports differ
    /// by a few tenths, the least.
    Reported(f64),
    /// GB of 1e9 bytes, of a data sheet. No report was found.
    Sheet(f64),
}

/// A device's figures in units that people read.
struct Sheet {
    name: &'static str,
    memory: Memory,
    tera_flops: f64,
    matmul: f64,
    terabytes_per_second: f64,
    streaming: f64,
    /// Gigabytes of the host's memory, and GB/s to it and of it.
    host: [f64; 3],
    /// Gigabytes of disks, and GB/s to read and to write.
    disks: [f64; 3],
    price: f64,
    source: &'static str,
}

/// The devices with names.
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
/// SC21). Of the memory's data sheet 0.8 count. Disks: DeepSpeed's DeepNVMe reports (2024 and 2025)
/// measured 10 and 5 GB/s on four drives of PCIe 4, and 48 and 26 GB/s on eight of PCIe 5. Aurora's
/// nodes have none.
///
/// No measured maximum was found for three devices of 2025: GB200 and B300 have B200's part here,
/// and MI355X MI300X's.
///
/// Memory is what PyTorch reported, in messages of public issues and logs that were read in
/// November 2026.
///
/// Prices are assumptions: US dollars per hour and device, in the order of what clouds asked in
/// 2025 and 2026. Give your own with `--price-per-hour`.
const SHEETS: [Sheet; 13] = [
    sheet(
        "a100-40g",
        Memory::Reported(39.4),
        [312.0, 0.73, 1.555, 0.8],
        [128.0, 16.0, 41.0],
        [1920.0, 1.2, 0.6],
        1.8,
        "NVIDIA A100 data sheet, 2021",
    ),
    sheet(
        "a100-80g",
        Memory::Reported(79.1),
        [312.0, 0.73, 2.039, 0.8],
        [256.0, 16.0, 41.0],
        [3840.0, 2.5, 1.2],
        2.2,
        "NVIDIA A100 data sheet, 2021",
    ),
    sheet(
        "h100-80g",
        Memory::Reported(79.1),
        [989.0, 0.675, 3.35, 0.8],
        [256.0, 55.0, 61.0],
        [3840.0, 6.0, 3.2],
        3.0,
        "NVIDIA H100 data sheet (SXM), 2023",
    ),
    sheet(
        "h200-141g",
        Memory::Reported(139.7),
        [989.0, 0.675, 4.8, 0.8],
        [256.0, 55.0, 61.0],
        [3840.0, 6.0, 3.2],
        3.5,
        "NVIDIA H200 data sheet, 2024",
    ),
    sheet(
        "b200-180g",
        Memory::Reported(178.3),
        [2250.0, 0.65, 8.0, 0.8],
        [256.0, 55.0, 72.0],
        [3500.0, 6.0, 3.2],
        5.0,
        "NVIDIA DGX B200 data sheet, 2024",
    ),
    sheet(
        "gb200-186g",
        Memory::Reported(184.3),
        [2500.0, 0.65, 8.0, 0.8],
        [240.0, 225.0, 205.0],
        [3500.0, 6.0, 3.2],
        6.0,
        "NVIDIA GB200 NVL72 data sheet, 2024",
    ),
    sheet(
        "b300-288g",
        Memory::Reported(267.6),
        [2250.0, 0.65, 8.0, 0.8],
        [256.0, 55.0, 72.0],
        [3500.0, 6.0, 3.2],
        6.0,
        "NVIDIA HGX B300 data sheet, 2025",
    ),
    sheet(
        "mi250x-gcd",
        Memory::Reported(63.9),
        [191.5, 0.6, 1.638, 0.8],
        [64.0, 25.6, 20.5],
        [480.0, 1.4, 0.5],
        1.0,
        "half of an AMD MI250X; OLCF's Frontier guide",
    ),
    sheet(
        "mi300x",
        Memory::Reported(191.6),
        [1307.0, 0.43, 5.3, 0.8],
        [192.0, 55.0, 61.0],
        [3840.0, 2.5, 1.2],
        3.0,
        "AMD MI300X data sheet, 2023",
    ),
    sheet(
        "mi355x",
        Memory::Reported(287.9),
        [2516.0, 0.43, 8.0, 0.8],
        [192.0, 55.0, 61.0],
        [3840.0, 2.5, 1.2],
        4.0,
        "AMD MI355X data sheet, 2025",
    ),
    sheet(
        "v100-32g",
        Memory::Reported(31.7),
        [125.0, 0.7, 0.9, 0.8],
        [94.0, 4.0, 13.0],
        [1875.0, 1.7, 0.9],
        1.0,
        "NVIDIA V100 data sheet (SXM2), 2020",
    ),
    sheet(
        "max-tile",
        Memory::Reported(63.9),
        [419.0, 0.415, 1.638, 0.61],
        [91.0, 26.5, 37.0],
        [0.0, 1.0, 1.0],
        1.0,
        "half of an Intel Max 1550; ALCF's Aurora guide",
    ),
    sheet(
        "laptop",
        Memory::Sheet(8.0),
        [0.1, 0.7, 0.03, 0.8],
        [8.0, 10.0, 10.0],
        [250.0, 3.7, 3.2],
        0.0,
        "one core with AVX-512, in f32; measure yours: --calibrate",
    ),
];

const fn sheet(
    name: &'static str,
    memory: Memory,
    device: [f64; 4],
    host: [f64; 3],
    disks: [f64; 3],
    price: f64,
    source: &'static str,
) -> Sheet {
    let [tera_flops, matmul, terabytes_per_second, streaming] = device;
    Sheet {
        name,
        memory,
        tera_flops,
        matmul,
        terabytes_per_second,
        streaming,
        host,
        disks,
        price,
        source,
    }
}

impl Device {
    /// The part of a device's memory that is left free, unless one says otherwise.
    pub const FREE: f64 = 0.1;

    /// All devices that have names.
    pub fn all() -> [Device; 13] {
        SHEETS.each_ref().map(Device::of)
    }

    /// The device of that name.
    pub fn named(name: &str) -> Option<Device> {
        let sheet = SHEETS.iter().find(|sheet| sheet.name == name)?;
        Some(Device::of(sheet))
    }

    fn of(sheet: &Sheet) -> Device {
        let [host_memory, host_link, host_bandwidth] = sheet.host.map(|gigabytes| 1e9 * gigabytes);
        let [disk, disk_read, disk_write] = sheet.disks.map(|gigabytes| 1e9 * gigabytes);
        Device {
            name: sheet.name.to_string(),
            memory: match sheet.memory {
                Memory::Reported(gibibytes) => gibibytes * f64::from(1 << 30),
                Memory::Sheet(gigabytes) => 1e9 * gigabytes,
            },
            free: Device::FREE,
            peak: 1e12 * sheet.tera_flops,
            matmul: sheet.matmul,
            bandwidth: 1e12 * sheet.terabytes_per_second,
            streaming: sheet.streaming,
            host_memory,
            host_link,
            host_bandwidth,
            disk,
            disk_read,
            disk_write,
            price: sheet.price,
            source: sheet.source,
        }
    }

    /// Bytes that a plan may use.
    pub fn room(&self) -> f64 {
        (1.0 - self.free) * self.memory
    }

    /// Whether a named device's memory is a data sheet's figure, not one that PyTorch reported.
    pub fn unreported(&self) -> bool {
        let sheet = SHEETS.iter().find(|sheet| sheet.name == self.name);
        sheet.is_some_and(|sheet| matches!(sheet.memory, Memory::Sheet(_)))
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

    /// How much of the room a load takes.
    pub fn share(&self, load: &Load) -> f64 {
        load.total() / self.room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_device() {
        for device in Device::all() {
            assert_eq!(Device::named(&device.name).as_ref(), Some(&device));
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
