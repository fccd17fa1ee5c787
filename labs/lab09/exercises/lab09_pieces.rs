//! lab09-pieces · What new rank 1 reads
//!
//! 3 ranks with ZeRO-1 have saved a parameter of 10 elements. It was padded to 12 and cut into 3 files. Now 2 ranks go on
//! with ZeRO-3, and each holds half of the parameter. What does new rank 1 read?
//!
//! ```text
//!                      file 0          file 1          file 2
//! place in the file    0  1  2  3      0  1  2  3      0  1  2  3
//! element              0  1  2  3      4  5  6  7      8  9  ·  ·
//!
//! new rank 0 reads     (0, 0..4) and (1, 0..1)
//! new rank 1 reads     ?
//! ```
//!
//! `(0, 0..4)` are places 0, 1, 2 and 3 of file 0: the end does not belong to a range, as in Python.

use std::ops::Range;

/// What new rank 1 reads, in order: a file, and the places in this file.
pub fn rank_1() -> Vec<(usize, Range<usize>)> {
    todo!("for rank 0 it would be vec![(0, 0..4), (1, 0..1)]")
}
