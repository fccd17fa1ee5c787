//! lab09-gather · One parameter from its slices

use std::ops::Range;

/// The files of all ranks.
pub trait Slices {
    fn ranks(&self) -> usize;
    /// Elements of each slice, padding included.
    fn numel(&self) -> usize;
    /// Reads elements of one rank's slice. `range` counts from the beginning of this slice.
    fn read(&mut self, rank: usize, range: Range<usize>) -> Vec<f32>;
}

/// One parameter, whole. `sizes` are the elements of all parameters of the group, in order. `wanted` is the number of the
/// parameter, counted from 0.
pub fn gather(slices: &mut dyn Slices, sizes: &[usize], wanted: usize) -> Vec<f32> {
    let part = slices.numel();
    let start: usize = sizes[..wanted].iter().sum();
    let end = start + sizes[wanted];
    let mut values = Vec::new();
    for rank in 0..slices.ranks() {
        // The elements that this slice and the parameter have in common, counted through the group.
        let begin = rank * part;
        let from = start.max(begin);
        let to = end.min(begin + part);
        if from < to {
            values.extend(slices.read(rank, from - begin..to - begin));
        }
    }
    values
}
