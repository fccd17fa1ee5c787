//! The way that is fastest on this machine.

use crate::kernel::Way;
use crate::matrix::Matrix;
use crate::product::product;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

impl Way {
    /// The fastest way of this machine. Tiles give bits of their own, so no stopwatch decides on
    /// them: they are taken where they are.
    pub fn best() -> Way {
        if Way::Tiles.is_here() {
            Way::Tiles
        } else {
            Way::best_of_vectors()
        }
    }

    /// The fastest way of this machine that gives every machine's bits.
    pub fn best_of_vectors() -> Way {
        static BEST: OnceLock<Way> = OnceLock::new();
        *BEST.get_or_init(|| match Way::VECTORS.into_iter().find(|way| way.is_here()) {
            Some(Way::Instruction) => faster(Way::Instruction, Way::Wide),
            first => first.unwrap_or(Way::Plain),
        })
    }
}

/// The faster one of two, each timed for half a millisecond. An AMD Zen 4 executes VDPBF16PS as
/// often as an f32's fused multiply-add, which does half as much. An Intel Emerald Rapids executes
/// it a quarter as often.
fn faster(one: Way, other: Way) -> Way {
    if time(other) < time(one) { other } else { one }
}

/// The shortest time of a small product.
fn time(way: Way) -> Duration {
    let numbers = [1f32; 128 * 128];
    let factor = || Matrix::new(&numbers, 128, 128);
    let runs = (0..9).map(|_| {
        let start = Instant::now();
        black_box(product(factor(), factor(), way));
        start.elapsed()
    });
    runs.min().unwrap_or_default()
}
