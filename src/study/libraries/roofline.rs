//! The roofline: how fast a computation can be on this machine, for its FLOPs per byte.

use super::lines::Timed;
use crate::show::{Plot, Screen, Series, bytes_decimal, significant};
use crate::tensor::matmul;
use std::time::Instant;

/// The peaks of one thread of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Peaks {
    /// FLOP/s of a large matrix product.
    pub flops: f64,
    /// Bytes per second that a large copy reads and writes.
    pub bytes: f64,
}

impl Peaks {
    // ANCHOR: peaks
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
        Peaks { flops: matmul::measured_peak(), bytes: 2.0 * from.len() as f64 / best }
    }

    /// The most FLOP/s at `intensity` FLOPs per byte.
    pub fn most(&self, intensity: f64) -> f64 {
        self.flops.min(self.bytes * intensity)
    }
    // ANCHOR_END: peaks

    /// The intensity at which both peaks are reached. Below it memory is the limit, above it the arithmetic.
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

/// A computation on the roofline.
#[derive(Clone, Debug)]
pub struct Point {
    pub name: String,
    /// FLOPs per byte.
    pub intensity: f64,
    /// FLOP/s of one rank.
    pub flops: f64,
}

impl Point {
    /// The computation of `ranks` ranks together, as one rank's.
    pub fn of(name: &str, timed: &Timed, ranks: usize) -> Point {
        let flops = timed.flops / timed.seconds / ranks as f64;
        Point { name: name.to_string(), intensity: timed.intensity(), flops }
    }
}

/// The roof, and each computation below it. Neighbours with the same name are one series.
pub fn roofline(screen: &Screen, peaks: &Peaks, points: &[Point]) -> String {
    let all = || points.iter().map(|point| point.intensity).chain([peaks.ridge()]);
    let (low, high) = (all().fold(f64::INFINITY, f64::min) / 2.0, all().fold(0.0, f64::max) * 2.0);
    let mut roof = vec![(low, peaks.most(low) / 1e9), (peaks.ridge(), peaks.flops / 1e9)];
    roof.push((high, peaks.flops / 1e9));
    let mut plot = Plot::new("GFLOP/s", "FLOPs per byte")
        .log_x()
        .log_y()
        .labels(|x| significant(x, 2), |y| significant(y, 2))
        .series(Series::line("roof", roof));
    for same in points.chunk_by(|a, b| a.name == b.name) {
        plot = plot.series(Series::dots(&same[0].name, same.iter().map(|point| (point.intensity, point.flops / 1e9))));
    }
    plot.height(10).render(screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_limit_below_the_ridge() {
        let peaks = Peaks { flops: 100e9, bytes: 10e9 };
        assert_eq!(peaks.ridge(), 10.0);
        assert_eq!([0.5, 10.0, 40.0].map(|intensity| peaks.most(intensity)), [5e9, 100e9, 100e9]);
        let point = |name: &str, intensity, flops| Point { name: name.to_string(), intensity, flops };
        let text = roofline(&Screen::plain(), &peaks, &[point("prefill", 40.0, 60e9), point("decode", 0.5, 2e9)]);
        assert!(text.contains("prefill") && text.contains("decode"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
