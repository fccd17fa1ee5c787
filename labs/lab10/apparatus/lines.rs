//! The lines that the source's benchmark prints, from a run's figures.

use kit::machine::resident_memory;
use kit::show::significant;

/// Dollars per hour of the machine: with it the source's figures give the source's cost.
pub const PRICE_PER_HOUR: f64 = 1.21;

/// One benchmark of one batch size: what was computed, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timed {
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    pub seconds: f64,
    /// FLOPs by the rule: 2 per parameter and token in a forward pass, 6 in training.
    pub flops: f64,
    /// Bytes that the matrix products of all ranks read and wrote.
    pub bytes: f64,
}

impl Timed {
    pub fn tokens(&self) -> usize {
        self.batch * self.seq
    }

    pub fn tokens_per_second(&self) -> f64 {
        self.tokens() as f64 / self.seconds
    }

    /// FLOPs per byte: the arithmetic intensity.
    pub fn intensity(&self) -> f64 {
        self.flops / self.bytes
    }

    /// `Batch=4|Seq=8 Elapsed=0.5190s TFLOPs=1.5 AI=22.86`
    pub fn line(&self) -> String {
        let Timed { batch, seq, seconds, flops, .. } = self;
        let tflops = significant(flops / seconds / 1e12, 2);
        format!(
            "Batch={batch}|Seq={seq} Elapsed={seconds:.4}s TFLOPs={tflops} AI={:.2}",
            self.intensity()
        )
    }

    /// `Tokens: 32, Time: 0.519s, Cost/1M: $5.45082`
    pub fn breakdown(&self) -> String {
        let cost = cost_per_million(self.tokens(), self.seconds, PRICE_PER_HOUR);
        format!("Tokens: {}, Time: {:.3}s, Cost/1M: ${cost:.5}", self.tokens(), self.seconds)
    }
}

// ANCHOR: cost
/// Dollars for a million tokens, if `tokens` take `seconds` on a machine of this price.
pub fn cost_per_million(tokens: usize, seconds: f64, price_per_hour: f64) -> f64 {
    let hours = seconds / 3600.0;
    price_per_hour * hours * 1e6 / tokens as f64
}
// ANCHOR_END: cost

/// The bytes of a rank and of its process, in the words of DeepSpeed's `see_memory_usage`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// MA: bytes that this rank has allocated.
    pub allocated: f64,
    pub max_allocated: f64,
    /// CA: bytes that its process has from the system, also freed ones that it keeps for reuse.
    pub reserved: f64,
    pub max_reserved: f64,
    /// Bytes of the machine's memory that are in use, by any process.
    pub machine_used: f64,
    pub machine: f64,
}

/// The meaning of the two lines where ranks compute on a CPU.
pub const MEMORY_MEANS: &str = "MA: bytes that this rank has allocated, now and at most (Max). CA: its process's. CPU \
                                Virtual Memory: this machine's. Units of 2^20 and 2^30 bytes.";

impl Memory {
    /// The memory of this process, and of a rank that has allocated `live` bytes, `peak` at the
    /// most.
    pub fn of_this_process(live: isize, peak: isize) -> Memory {
        let bytes = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
        let (used, machine) = machine_memory().unzip();
        Memory {
            allocated: live as f64,
            max_allocated: peak as f64,
            reserved: bytes(resident_memory()),
            max_reserved: bytes(peak_resident_memory()),
            machine_used: bytes(used),
            machine: bytes(machine),
        }
    }

    /// The two lines.
    pub fn lines(&self) -> [String; 2] {
        let [ma, max_ma, ca, max_ca] =
            [self.allocated, self.max_allocated, self.reserved, self.max_reserved].map(in_words);
        let gap = " ".repeat(9);
        let percent = 100.0 * self.machine_used / self.machine;
        [
            format!("MA {ma}{gap}Max_MA {max_ma}{gap}CA {ca}{gap}Max_CA {max_ca}"),
            format!(
                "CPU Virtual Memory:  used = {:.2} GB, percent = {percent:.1}%",
                self.machine_used / GB
            ),
        ]
    }
}

/// The most that [`resident_memory`] has been. None if the system does not provide the number.
fn peak_resident_memory() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Bytes of the machine's memory that are in use, and all that it has.
fn machine_memory() -> Option<(u64, u64)> {
    let memory = sysinfo::RefreshKind::nothing()
        .with_memory(sysinfo::MemoryRefreshKind::nothing().with_ram());
    let system = sysinfo::System::new_with_specifics(memory).ok()?;
    let total = system.total_memory();
    let available = system.available_memory();
    (total > 0).then(|| (total.saturating_sub(available), total))
}

/// The GB of DeepSpeed's lines.
const GB: f64 = (1u64 << 30) as f64;

/// A small model's bytes would be `0.0 GB`, so they are given in MB of 2^20 bytes.
fn in_words(bytes: f64) -> String {
    let (size, unit) = if bytes < GB {
        (bytes / (GB / 1024.0), "MB")
    } else {
        (bytes / GB, "GB")
    };
    format!("{} {unit}", significant(size, 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source prints its time rounded to 0.1 ms, and its cost from the time before rounding.
    #[test]
    fn the_sources_cost() {
        let cost = |seconds| cost_per_million(32, seconds, PRICE_PER_HOUR);
        assert!(
            cost(0.51895) < 5.45082 && 5.45082 < cost(0.51905),
            "{} {}",
            cost(0.51895),
            cost(0.51905)
        );
        let timed = Timed { batch: 4, seq: 8, seconds: 0.518954, ..Timed::default() };
        assert_eq!(timed.breakdown(), "Tokens: 32, Time: 0.519s, Cost/1M: $5.45082");
    }

    #[test]
    fn memory_as_deepspeed_prints_it() {
        let memory = Memory {
            allocated: 2.3 * GB,
            max_allocated: 2.79 * GB,
            reserved: 2.79 * GB,
            max_reserved: 3.0 * GB,
            machine_used: 7.54 * GB,
            machine: 7.54 * GB / 0.042,
        };
        assert_eq!(
            memory.lines(),
            [
                "MA 2.30 GB         Max_MA 2.79 GB         CA 2.79 GB         Max_CA 3.00 GB",
                "CPU Virtual Memory:  used = 7.54 GB, percent = 4.2%"
            ]
        );
        assert!(
            Memory { allocated: 1.5 * GB / 1024.0, ..memory }.lines()[0].starts_with("MA 1.50 MB ")
        );
    }
}
