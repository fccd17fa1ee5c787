//! lab07-peak · Read the schedule from the memory

/// Passes that the first and the last stage kept. What is left over is less than one pass.
pub fn kept() -> (usize, usize) {
    let pass = 2048 * 2 * 2048 * (10 + 24 / 2) / (1 << 20); // 176 MB
    ((7_706 - 1_942) / pass, (6_714 - 1_958 - 197) / pass)
}
