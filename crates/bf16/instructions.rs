//! The instructions of a processor's tiles, as the kernel uses them.

use crate::pack::SIDE;

/// Inner positions whose products one instruction adds to a sum: 16 pairs.
pub const STEP: usize = 2 * PAIRS;
/// Pairs of a tile's row. A tile has as many rows, and the sums of as many columns.
pub const PAIRS: usize = SIDE;

/// Instructions on a thread's eight tiles, each of 16 rows of 64 bytes: pairs, or sums. Strides are
/// counted in elements of 4 bytes.
pub trait Instructions: Sized {
    /// Makes the thread's tiles ready, until this is dropped.
    fn begin() -> Self;

    fn zero<const TO: usize>(&mut self);

    /// # Safety
    /// A tile's rows at `from` must be valid for reads.
    unsafe fn load<const TO: usize>(&mut self, from: *const u32, stride: usize);

    /// Adds the products of 16 rows of pairs and 16 columns of pairs to 256 sums.
    fn add<const SUMS: usize, const LEFT: usize, const RIGHT: usize>(&mut self);

    /// # Safety
    /// A tile's rows at `to` must be valid for writes.
    unsafe fn store<const FROM: usize>(&self, to: *mut u32, stride: usize);
}
