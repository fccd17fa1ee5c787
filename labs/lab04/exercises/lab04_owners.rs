//! lab04-owners · Whole matrices for ranks
//!
//! Muon's step of a matrix needs the whole matrix. So no rank can have a flat slice of one: each
//! matrix goes to one rank, which holds its momentum and makes its step. All wait for the rank that
//! has most to do. And an all-gather of what they have changed takes parts of equal length, so
//! every rank's part is filled up to that of the fullest.
//!
//! ```text
//! matrices of 3, 1, 4 and 4 numbers on 2 ranks
//!
//!            rank 0    rank 1    fullest    padding
//! [0,0,1,1]  3 1       4 4       8          4
//! [0,1,0,1]  3 4       1 4       7          2
//! ```
//!
//! DeepSeek-V4's report adds a limit: no rank gets more than five matrices. (Many small ones take
//! longer than their numbers say.)

/// No rank gets more matrices than this.
pub const MOST: usize = 5;

/// The owner of each matrix, from its size. There are at most `MOST` times `ranks` matrices.
pub fn owners(sizes: &[usize], ranks: usize) -> Vec<usize> {
    todo!("{} matrices on {ranks} ranks, at most {MOST} on each", sizes.len())
}
