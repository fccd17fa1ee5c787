//! lab10-settings · A key that nobody reads
//!
//! A job on 16 ranks has these settings. Compute by hand how many replicas of the model there are, and how many sequences a
//! step has. Then compute both for a library that does not know the key `tensor_parallel`, and ignores it.
//!
//! ```text
//! tensor_parallel  2                                   replicas   sequences
//! stages           2    the library reads all keys         ?          ?
//! micro_batch      3    it ignores tensor_parallel         ?          ?
//! accumulation     5
//! ```
//!
//! A micro-batch has 3 sequences, and a replica adds up the gradients of 5 micro-batches in each step.

/// Replicas, and sequences of all replicas per step: with all keys, and without `tensor_parallel`.
pub fn answers() -> [[usize; 2]; 2] {
    todo!("for instance [[16, 100], [16, 100]]")
}
