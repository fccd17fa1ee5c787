//! lab09-overlap · Read only what is yours
//!
//! A job with ZeRO-1 has saved. The parameters lie end to end, and each old rank's file has one slice of this line. All slices
//! are equally long, so a slice can begin and end in the middle of a parameter. The line is padded at its end. So the last
//! files have padding, and some of them nothing else.
//!
//! The job goes on with ZeRO-3, on a different number of ranks. Now each parameter is cut by itself: new rank r has the r-th
//! slice of every parameter. A slice has `size.div_ceil(ranks)` elements, but it ends where its parameter ends: the last
//! slices can be shorter, or empty. They are not padded.
//!
//! Lab09 puts whole parameters together and then takes a slice, so each new rank reads all files. You do without:
//!
//! - Read each element that the new rank holds once, and no other element, and no padding.
//! - Do not read from a file that has nothing of them, not even an empty range: it would have to be opened.
//!
//! The check looks at the numbers first. Then it counts what was read.

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

/// What new rank `rank` of `ranks` holds of each parameter. `sizes` are the elements of all parameters, in order.
pub fn load(files: &mut dyn Files, sizes: &[usize], rank: usize, ranks: usize) -> Vec<Vec<f32>> {
    let part = files.numel();
    todo!(
        "{} files of {part} elements: which of them have some of rank {rank}'s slices of {sizes:?}, cut for {ranks} ranks?",
        files.ranks()
    )
}
