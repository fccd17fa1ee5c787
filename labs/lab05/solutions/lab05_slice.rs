//! lab05-slice · One rank's share of an MLP

/// Rank 0's share. Every other rank's has the same shapes.
pub struct Answers {
    /// Rows and columns of its slice of A, and of its slice of B.
    pub a: [u64; 2],
    pub b: [u64; 2],
    /// Bytes that it sends in the forward pass.
    pub bytes: u64,
}

pub fn answers() -> Answers {
    Answers {
        a: [4096, 16384 / 8],
        b: [16384 / 8, 4096],
        bytes: 2 * 7 * (1000 * 4096 * 4 / 8),
    }
}
