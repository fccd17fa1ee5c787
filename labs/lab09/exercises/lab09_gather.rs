//! lab09-gather · One parameter from its slices
//!
//! A job with ZeRO-1 has saved. The parameters of a group lie end to end, and each rank's file has one slice of them. All
//! slices are equally long, so a slice can begin and end in the middle of a parameter. The group is padded at its end. So
//! the last slices have padding, and some of them nothing else.
//!
//! You want one parameter of it. The files of a large job have terabytes, and this parameter has megabytes. So read its
//! elements and nothing else:
//!
//! - Read each of its elements once, and no element of a different parameter, and no padding.
//! - Do not read from a file that has nothing of this parameter, not even an empty range: it would have to be opened.
//!
//! The check looks at the numbers first. Then it counts what was read.

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
    let ranks = slices.ranks();
    let part = slices.numel();
    todo!(
        "{ranks} slices of {part} elements: which of them have some of the {} elements?",
        sizes[wanted]
    )
}
