//! lab11-state · 24 billion parameters on 96 devices

/// In GB: 1 GB is 10^9 bytes.
pub fn one_rank() -> f64 {
    24.0 / (4.0 * 2.0) * (2.0 + 4.0 + 12.0 / 12.0)
}
