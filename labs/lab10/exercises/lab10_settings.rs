//! lab10-settings · A key that nobody reads
//!
//! A job on 24 ranks has these settings, and its library ignores `tensor_parallel`. How many
//! sequences does a step have?
//!
//! ```text
//! tensor_parallel    4
//! stages             2
//! micro_batch        3
//! accumulation       5
//! ```

/// Sequences of all replicas together.
pub fn sequences() -> usize {
    todo!("a number of sequences")
}
