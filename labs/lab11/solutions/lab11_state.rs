//! lab11-state · Three plans for 7 billion parameters

/// The GB of a rank under plans A, B and C: 1 GB is 10^9 bytes.
pub fn gigabytes() -> [f64; 3] {
    // 7 x (2 + 4 + 12 / 8). 7 / 4 x 18. 7 / (2 x 2) x (2 + 4 + 12 / 2).
    [52.5, 31.5, 21.0]
}
