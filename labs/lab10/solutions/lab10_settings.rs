//! lab10-settings · A key that nobody reads

/// Sequences of all replicas together.
pub fn sequences() -> usize {
    24 / 2 * 3 * 5
}
