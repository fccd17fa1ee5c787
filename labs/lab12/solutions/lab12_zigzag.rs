//! lab12-zigzag · An early chunk and a late one

/// The first position of each of its two chunks, the earlier one first.
pub fn chunks_of_rank_2() -> [usize; 2] {
    [200, 1300]
}
