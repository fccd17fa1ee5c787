//! lab05-slice · One rank's share of an MLP

/// Rows and columns of its slice.
pub fn slice_of_c() -> [usize; 2] {
    [16384 / 8, 4096]
}
