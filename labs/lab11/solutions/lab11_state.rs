//! lab11-state · 24 billion parameters on 96 devices

/// In GB: 1 GB is 10^9 bytes.
pub fn one_rank() -> u64 {
    24 / (4 * 2) * (2 + 4 + 12 / 12)
}
