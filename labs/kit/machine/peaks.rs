//! How fast this machine can be.

use crate::show::{bytes_decimal, significant};
use shardlab::tensor::Precision;
use shardlab::tensor::matmul::{Matrix, Write, matmul, matmul_in};
use std::time::{Duration, Instant};

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
            flops: matmul_peak(Precision::F32),
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

/// Measures the matmul peak of one thread on this machine, in FLOP/s: the best of several products
/// of square matrices in `products`.
///
/// MFU compares a training step with this peak. A figure from a data sheet would describe a
/// different machine. Pauses let a neighbour's short work pass.
pub fn matmul_peak(products: Precision) -> f64 {
    const N: usize = 768;
    const REPEATS: usize = 16;
    const PAUSE: Duration = Duration::from_millis(15);
    let a = vec![0.5; N * N];
    let b = vec![0.25; N * N];
    let mut c = vec![0.0; N * N];
    let mut best = f64::INFINITY;
    for repeat in 0..REPEATS {
        if repeat % 4 == 3 && !cfg!(target_family = "wasm") {
            std::thread::sleep(PAUSE);
        }
        let start = Instant::now();
        let factors = (Matrix::new(&a, N, N), Matrix::new(&b, N, N).t());
        matmul_in(products, &mut c, N, Write::Replace, factors.0, factors.1);
        best = best.min(start.elapsed().as_secs_f64());
    }
    assert_eq!(c[0], N as f32 * 0.125);
    2.0 * (N * N * N) as f64 / best
}

/// Allocates the calling thread's room for packed factors. The `gemm` crate makes it at a thread's
/// first product, as large as the processor's L2 cache: a measurement that begins after this call
/// counts the same bytes on every machine.
pub fn allocate_matmul_room() {
    const N: usize = 64;
    let a = [0.0; N * N];
    let mut c = [0.0; N * N];
    let factor = Matrix::new(&a, N, N);
    matmul(&mut c, N, Write::Replace, factor, factor);
}
