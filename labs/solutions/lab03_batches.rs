//! lab03-batches · Each rank's batches

use shardlab::tensor::random::Stream;

/// What all ranks of a run know.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub seed: u64,
    pub ranks: usize,
    /// Sequences a rank and step.
    pub batch: usize,
    /// Tokens in a sequence.
    pub block: usize,
    /// Tokens in the text.
    pub tokens: usize,
}

/// The places in the text where the sequences of rank `rank` at step `step` start.
///
/// A sequence is the `block` tokens from there on; what it should predict are the `block` tokens one place further on.
pub fn starts(run: &Run, rank: usize, step: usize) -> Vec<usize> {
    // The last place from which a sequence and one token more fit into the text is places - 1.
    let places = (run.tokens - run.block) as u64;
    let stream = Stream::new(run.seed, "batches").branch(rank as u64).branch(step as u64);
    (0..run.batch as u64).map(|i| stream.below(places, i) as usize).collect()
}
