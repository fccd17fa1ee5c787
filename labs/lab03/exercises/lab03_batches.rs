//! lab03-batches · Each rank's batches
//!
//! Ranks that train on the same sequences compute the same gradients. N ranks then learn what one
//! rank learns, at N times the cost, and nothing on the screen looks wrong. So every rank needs its
//! own sequences, different ones at every step.
//!
//! ```text
//! seed 1337, 2 ranks, batches of 3 sequences of 16 tokens, a text of 1,000
//!
//!             rank 0 starts at     rank 1 starts at
//! step 0       657  546  706         24  276  735
//! step 1       971  936  384        947  713   17     (for instance)
//! ```
//!
//! When a run is resumed it must draw the same sequences again, although nothing was saved.
//! `Stream` is made for this: its random numbers are functions of an address.
//! `Stream::new(seed, name)` is a stream. `stream.branch(n)` is a different stream for every n, and
//! has branches, too. `stream.below(n, i)` is the i-th number of the stream, from 0 to n - 1.

use shardlab::tensor::random::Stream;

/// The numbers that all ranks of a run know.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub seed: u64,
    pub ranks: usize,
    /// Sequences per rank and step.
    pub batch: usize,
    /// Tokens in a sequence.
    pub block: usize,
    /// Tokens in the text.
    pub tokens: usize,
}

/// The offsets in the text at which the sequences of rank `rank` at step `step` start.
///
/// A sequence consists of the `block` tokens from its offset on. The tokens that it should predict
/// begin one token later.
pub fn starts(run: &Run, rank: usize, step: usize) -> Vec<usize> {
    // The last offset from which a sequence and one more token fit into the text is offsets - 1.
    let offsets = (run.tokens - run.block) as u64;
    let stream = Stream::new(run.seed, "batches");
    todo!(
        "{} offsets for rank {rank} at step {step}: all would get {}, ..",
        run.batch,
        stream.below(offsets, 0)
    )
}
