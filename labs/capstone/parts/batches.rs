//! `lab03-batches`: where in the text a rank's sequences start.

use shardlab::tensor::random::Stream;

/// The numbers that all ranks of a run know.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    pub seed: u64,
    pub ranks: usize,
    /// Sequences per rank and micro-batch.
    pub batch: usize,
    /// Tokens in a sequence.
    pub block: usize,
    /// Tokens in the text.
    pub tokens: usize,
}

/// Of a rank, and of a micro-batch: `step` counts micro-batches.
pub type Batches = fn(&Draw, usize, usize) -> Vec<usize>;

pub fn library(draw: &Draw, rank: usize, step: usize) -> Vec<usize> {
    let stream = Stream::new(draw.seed, "batches").branch(rank as u64).branch(step as u64);
    let offsets = (draw.tokens - draw.block) as u64;
    (0..draw.batch as u64).map(|i| stream.below(offsets, i) as usize).collect()
}

/// All ranks draw the same sequences.
pub fn without(draw: &Draw, _rank: usize, step: usize) -> Vec<usize> {
    library(draw, 0, step)
}
