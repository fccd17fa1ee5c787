//! lab03-profile · Read a profile

/// A: milliseconds, B: a rank, C: a bucket.
pub fn read_off() -> [usize; 3] {
    [57, 1, 2]
}
