//! lab09-overlap · Read only what is yours
//!
//! A job with ZeRO-1 has saved. Its parameters lie end to end in one line, which is padded and cut
//! into equally long files. So a file can begin and end in the middle of a parameter, and the last
//! files can have nothing but padding.
//!
//! The job goes on with ZeRO-3, on a different number of ranks. Now each parameter is cut by
//! itself, into slices of `size.div_ceil(ranks)` elements, and rank r has the r-th of each. A slice
//! ends where its parameter ends: the last slices can be shorter, or empty.
//!
//! ```text
//!                     file 0           file 1           file 2
//! sizes [5, 4]        a0 a1 a2 a3      a4 b0 b1 b2      b3  ·  ·  ·
//!
//! rank 0 of 2         [a0 a1 a2] and [b0 b1]
//! rank 1 of 2         [a3 a4]    and [b2 b3]
//! ```
//!
//! Lab09's own reader puts whole parameters together first, so each new rank reads all files. You
//! do without:
//!
//! - Read each element that the new rank holds once, and no other element, and no padding.
//! - Do not read from a file that has nothing of them, not even an empty range: it would have to be
//!   opened.

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
    todo!(
        "{} files of {part} elements: which of them have some of rank {rank}'s slices of {sizes:?}, cut for {ranks} ranks?",
        files.ranks()
    )
}
