//! lab08-after · The step after a skip

pub fn first() -> usize {
    15 * 8 + 1
}
