//! The instructions of a processor's tiles, as the kernel uses them.

use crate::pack::{Pairing, SIDE};

/// Inner positions whose products one instruction adds to a sum: 16 pairs.
pub const STEP: usize = 2 * PAIRS;
/// Pairs of a tile's row. A tile has as many rows, and the sums of as many columns.
pub const PAIRS: usize = SIDE;

/// Instructions on a thread's eight tiles, each of 16 rows of 64 bytes: pairs, or sums. Strides are
/// counted in elements of 4 bytes.
pub trait Instructions: Pairing + Sized {
    /// Makes the thread's tiles ready, until this is dropped.
    fn begin() -> Self;

    fn zero<const TO: usize>(&mut self);

    /// # Safety
    /// A tile's rows at `from` must be valid for reads.
    unsafe fn load<const TO: usize>(&mut self, from: *const u32, stride: usize);

    /// Says that so many numbers will be read next. They may be outside of everything.
    fn fetch(_from: *const u32, _numbers: usize) {}

    /// Says that rows of numbers will be written next.
    fn fetch_to_write(_to: *mut u32, _shape: [usize; 2], _stride: usize) {}

    /// Adds the products of 16 rows of pairs and 16 columns of pairs to 256 sums.
    fn add<const SUMS: usize, const LEFT: usize, const RIGHT: usize>(&mut self);

    /// # Safety
    /// A tile's rows at `to` must be valid for writes.
    unsafe fn store<const FROM: usize>(&self, to: *mut u32, stride: usize);
}
