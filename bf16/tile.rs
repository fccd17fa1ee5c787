//! A tile of the result: its size, where a packed factor has its pairs, and where its sums go.

use crate::matrix::Write;

/// Rows of a tile.
pub const ROWS: usize = 8;
/// Columns of a tile: two of the widest vectors. The tile's 16 vectors of sums hide the
/// instruction's latency, and leave room for the factors.
pub const COLS: usize = 32;

/// Where a packed left factor has its pairs.
#[derive(Clone, Copy)]
pub struct Strides {
    /// From a row to the next one.
    pub row: usize,
    /// From a pair to the next one.
    pub pair: usize,
}

/// Where sums go: rows of `c`, which are `stride` apart.
pub struct Destination<'a> {
    pub c: &'a mut [f32],
    pub stride: usize,
    pub write: Write,
}

impl Destination<'_> {
    /// Writes the first `width` columns of `sums`, or adds them.
    #[inline(always)]
    pub fn put(self, sums: &[[f32; COLS]], width: usize) {
        for (row, sums) in sums.iter().enumerate() {
            let c = &mut self.c[row * self.stride..][..width];
            match self.write {
                Write::Replace => c.copy_from_slice(&sums[..width]),
                Write::Add => c.iter_mut().zip(sums).for_each(|(c, sum)| *c += sum),
            }
        }
    }
}
