//! lab10-settings · A key that nobody reads

/// Replicas, and sequences of all replicas per step: with all keys, and without `tensor_parallel`.
pub fn answers() -> [[usize; 2]; 2] {
    // 16 / (2 x 2) replicas, each with 3 x 5 sequences. Without tensor ranks there are 16 / 2.
    [[4, 60], [8, 120]]
}
