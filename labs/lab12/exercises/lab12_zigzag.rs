//! lab12-zigzag · An early chunk and a late one
//!
//! Eight context ranks share sequences of 1,600 tokens in zig-zag order. Which positions does
//! rank 2 hold?
//!
//! ```text
//! positions     0 .. 99   100 .. 199   ..   1500 .. 1599
//! rank             0          1        ..         0
//! ```

/// The first position of each of its two chunks, the earlier one first.
pub fn chunks_of_rank_2() -> [usize; 2] {
    todo!("[first position of a chunk, first position of another]")
}
