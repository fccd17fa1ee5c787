//! What a processor's tiles compute, bit by bit, on any machine.

use crate::instructions::{Instructions, PAIRS};
use crate::number::unpaired;
use crate::pack::{InLoops, Pairing, Square};

/// What TDPBF16PS computes for one element: `sum` plus the products of at most 16 pairs of a row of
/// the left factor and of a column of the right one. All numbers are bits; a pair has its even
/// position in the lower half.
///
/// The products of even and of odd positions have a sum each, which begins at zero. Both are added,
/// and the result is added to `sum`. Each step rounds once, to nearest, ties to even. What is below
/// the normal range, of the numbers that come in as well, becomes a zero of its sign.
pub fn pairs_added(sum: u32, left: &[u32], right: &[u32]) -> f32 {
    let [mut even, mut odd] = [0f32; 2];
    for (&left, &right) in left.iter().zip(right) {
        let [a, b] = [left, right].map(|pair| unpaired(pair).map(flushed));
        even = fused(a[0], b[0], even);
        odd = fused(a[1], b[1], odd);
    }
    flushed(flushed(f32::from_bits(sum)) + flushed(even + odd))
}

fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE {
        0f32.copysign(x)
    } else {
        x
    }
}

/// `a · b + sum`, rounded once to 24 bits whatever the exponent, and then flushed.
fn fused(a: f32, b: f32, sum: f32) -> f32 {
    const SCALE: f32 = 18_446_744_073_709_551_616.0; // 2^64
    let result = a.mul_add(b, sum);
    // Fewer than 24 bits may have been rounded up to this.
    let was_less = result.abs() == f32::MIN_POSITIVE
        && (a * SCALE).mul_add(b, sum * SCALE).abs() < SCALE * f32::MIN_POSITIVE;
    if was_less {
        0f32.copysign(result)
    } else {
        flushed(result)
    }
}

/// Eight tiles in memory.
pub struct Emulated([[[u32; PAIRS]; PAIRS]; 8]);

impl Pairing for Emulated {
    fn neighbours(row: &[f32], packed: &mut [u32]) {
        InLoops::neighbours(row, packed);
    }

    fn of_rows(even: &[f32], odd: &[f32], packed: &mut [u32]) {
        InLoops::of_rows(even, odd, packed);
    }

    fn transpose(square: &mut Square) {
        InLoops::transpose(square);
    }
}

impl Instructions for Emulated {
    fn begin() -> Emulated {
        Emulated([[[0; PAIRS]; PAIRS]; 8])
    }

    fn zero<const TO: usize>(&mut self) {
        self.0[TO] = [[0; PAIRS]; PAIRS];
    }

    unsafe fn load<const TO: usize>(&mut self, from: *const u32, stride: usize) {
        for (r, row) in self.0[TO].iter_mut().enumerate() {
            // SAFETY: the caller's.
            *row = unsafe { from.add(r * stride).cast::<[u32; PAIRS]>().read() };
        }
    }

    fn add<const SUMS: usize, const LEFT: usize, const RIGHT: usize>(&mut self) {
        for row in 0..PAIRS {
            let left = self.0[LEFT][row];
            for col in 0..PAIRS {
                let right = self.0[RIGHT].map(|pairs| pairs[col]);
                let sum = &mut self.0[SUMS][row][col];
                *sum = pairs_added(*sum, &left, &right).to_bits();
            }
        }
    }

    unsafe fn store<const FROM: usize>(&self, to: *mut u32, stride: usize) {
        for (r, row) in self.0[FROM].iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { to.add(r * stride).cast::<[u32; PAIRS]>().write(*row) };
        }
    }
}
