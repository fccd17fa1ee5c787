//! lab03-batches · Each rank's batches
//!
//! Ranks that train on the same sequences compute the same gradients: N ranks then learn what one learns, at N times the
//! cost, and nothing on the screen looks wrong. So every rank, at every step, needs sequences of its own.
//!
//! And they must be the same again when a run is resumed, without anything saved. `Stream` is made for that: random numbers
//! that are functions of an address. `Stream::new(seed, name)` is a stream; `stream.branch(n)` is another one for every n,
//! and has branches too; `stream.below(n, i)` is its i-th number, from 0 to n - 1.

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
    let stream = Stream::new(run.seed, "batches");
    todo!("{} places for rank {rank} at step {step}: all would get {}, ..", run.batch, stream.below(places, 0))
}
