//! `lab09-overlap`: what a new rank holds of each parameter, read from the old ranks' files.

use std::ops::Range;

/// The old ranks' files: one line of numbers, cut into equal parts.
pub trait Files {
    /// How many there are.
    fn ranks(&self) -> usize;
    /// Numbers in each file, padding included.
    fn numel(&self) -> usize;
    /// Reads numbers of one old rank's file. `range` counts from the beginning of this file.
    fn read(&mut self, rank: usize, range: Range<usize>) -> Vec<f32>;
}

/// Of the files, all parameters' sizes in order, a new rank, and the number of new ranks.
pub type Load = fn(&mut dyn Files, &[usize], usize, usize) -> Vec<Vec<f32>>;

pub fn library(files: &mut dyn Files, sizes: &[usize], rank: usize, ranks: usize) -> Vec<Vec<f32>> {
    let mut first = 0;
    let mut slices = Vec::new();
    for &size in sizes {
        let mine = mine(size, rank, ranks);
        let mut slice = Vec::new();
        for (old, part) in (0..files.ranks()).zip((0..).step_by(files.numel())) {
            let from = part.max(first + mine.start);
            let to = (part + files.numel()).min(first + mine.end);
            if from < to {
                slice.extend(files.read(old, from - part..to - part));
            }
        }
        slices.push(slice);
        first += size;
    }
    slices
}

/// Nothing is read: weights and moments are zeros.
pub fn without(
    _files: &mut dyn Files,
    sizes: &[usize],
    rank: usize,
    ranks: usize,
) -> Vec<Vec<f32>> {
    let zeros = |&size: &usize| vec![0.0; mine(size, rank, ranks).len()];
    sizes.iter().map(zeros).collect()
}

/// The elements of a parameter that a new rank holds. The last ranks may hold fewer than the
/// others.
pub fn mine(size: usize, rank: usize, ranks: usize) -> Range<usize> {
    let each = size.div_ceil(ranks);
    size.min(rank * each)..size.min((rank + 1) * each)
}
