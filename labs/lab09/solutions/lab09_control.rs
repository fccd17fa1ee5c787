//! lab09-control · From how many ranks on?

/// The smallest number of ranks at which the old rule fails.
pub fn smallest() -> usize {
    8
}
