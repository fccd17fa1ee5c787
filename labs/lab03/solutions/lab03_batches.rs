//! lab03-batches · Each rank's batches

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
    let stream = Stream::new(run.seed, "batches").branch(rank as u64).branch(step as u64);
    (0..run.batch as u64).map(|i| stream.below(offsets, i) as usize).collect()
}
