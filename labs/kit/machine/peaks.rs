//! How fast this machine can be.

use crate::show::{bytes_decimal, significant};
use shardlab::tensor::{Precision, matmul};
use std::time::Instant;

/// The peaks of one thread of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Peaks {
    /// FLOP/s of a large matrix product in f32.
    pub flops: f64,
    /// Bytes per second that a large copy reads and writes.
    pub bytes: f64,
}

impl Peaks {
    /// Measures both peaks: a matrix product, and a copy of 64 MB.
    pub fn measure() -> Peaks {
        let from = vec![1u8; 64_000_000];
        let mut to = vec![0u8; from.len()];
        let copy = |_| {
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&to);
            start.elapsed().as_secs_f64()
        };
        let best = (0..6).map(copy).fold(f64::INFINITY, f64::min);
        Peaks {
            flops: matmul::measured_peak(Precision::F32),
            bytes: 2.0 * from.len() as f64 / best,
        }
    }

    /// The most FLOP/s at `intensity` FLOPs per byte.
    pub fn most(&self, intensity: f64) -> f64 {
        self.flops.min(self.bytes * intensity)
    }

    /// The intensity at which both peaks are reached. Below it memory is the limit, above it the
    /// arithmetic.
    pub fn ridge(&self) -> f64 {
        self.flops / self.bytes
    }

    pub fn in_words(&self) -> String {
        format!(
            "{} GFLOP/s and {}/s per thread; ridge at {} FLOPs per byte",
            significant(self.flops / 1e9, 3),
            bytes_decimal(self.bytes),
            significant(self.ridge(), 2)
        )
    }
}
