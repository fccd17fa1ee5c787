//! A tile of the result: its size, where a packed factor has its pairs, and where its sums go.

use crate::matrix::Write;
use std::mem::MaybeUninit;

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
    /// With `Write::Add`, all are there; else they may not have been written yet.
    pub c: &'a mut [MaybeUninit<f32>],
    pub stride: usize,
    pub write: Write,
}

/// Numbers that are there, as a destination has them.
pub fn written(c: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: the types have the same layout, and only numbers are written here.
    unsafe { &mut *(c as *mut [f32] as *mut [MaybeUninit<f32>]) }
}

impl Destination<'_> {
    /// Reads the first `width` columns of what `Write::Add` adds to.
    pub fn get(&self, sums: &mut [[f32; COLS]], width: usize) {
        if self.write == Write::Replace {
            return;
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let c = &self.c[row * self.stride..][..width];
            // SAFETY: they are there.
            c.iter().zip(sums).for_each(|(c, sum)| *sum = unsafe { c.assume_init() });
        }
    }

    /// Writes the first `width` columns of `sums`, or adds them.
    #[inline(always)]
    pub fn put(self, sums: &[[f32; COLS]], width: usize) {
        for (row, sums) in sums.iter().enumerate() {
            let c = &mut self.c[row * self.stride..][..width];
            match self.write {
                Write::Replace => c.iter_mut().zip(sums).for_each(|(c, sum)| _ = c.write(*sum)),
                // SAFETY: they are there.
                Write::Add => {
                    c.iter_mut()
                        .zip(sums)
                        .for_each(|(c, sum)| unsafe { *c.assume_init_mut() += sum });
                }
            }
        }
    }
}
