//! lab09-overlap · Read only what is yours

use std::ops::Range;

/// The old ranks' files.
pub trait Files {
    /// How many there are.
    fn ranks(&self) -> usize;
    /// Elements in each file, padding included.
    fn numel(&self) -> usize;
    /// Reads elements of one old rank's file. `range` counts from the beginning of this file.
    fn read(&mut self, rank: usize, range: Range<usize>) -> Vec<f32>;
}

/// What new rank `rank` of `ranks` holds of each parameter. `sizes` are the elements of all
/// parameters, in order.
pub fn load(files: &mut dyn Files, sizes: &[usize], rank: usize, ranks: usize) -> Vec<Vec<f32>> {
    let part = files.numel();
    let mut slices = Vec::new();
    let mut start = 0;
    for &size in sizes {
        // This rank's slice, in elements of the parameter. `start` is where the parameter begins in
        // the line.
        let length = size.div_ceil(ranks);
        let first = size.min(rank * length);
        let last = size.min(first + length);
        let mut slice = Vec::new();
        for old in 0..files.ranks() {
            // The elements that this file and the slice have in common, counted through the line.
            let begin = old * part;
            let from = begin.max(start + first);
            let to = (begin + part).min(start + last);
            if from < to {
                slice.extend(files.read(old, from - begin..to - begin));
            }
        }
        slices.push(slice);
        start += size;
    }
    slices
}
