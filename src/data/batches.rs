//! The sequences that each rank trains on. Every rank needs its own sequences; otherwise N ranks do
//! the work of one.
//!
//! A batch is a function of (seed, rank, step, micro-step). So a checkpoint need not store the
//! sampler's state, and one rank can draw the batches of N ranks.

use crate::named::named;
use crate::tensor::Documents;
use crate::tensor::random::Stream;
use std::ops::Range;
use std::sync::Arc;

named! {
    /// The ways to give ranks different data.
    pub enum Sampling {
        /// The text is cut into one slice per rank; each rank draws from its own slice.
        Partition = "partition",
        /// Every rank draws from the whole text, with its own seed.
        Seeds = "seeds",
        /// All ranks number the sequences of one global batch, and each draws its own numbers. So
        /// the global batch stays the same when a job continues on a different number of ranks.
        Global = "global",
    }
}

/// Sequences of tokens and, for each position, the token that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// [sequences, length], flat.
    pub inputs: Vec<u32>,
    /// The next token of every position in `inputs`.
    pub targets: Vec<u32>,
    /// Tokens per sequence.
    pub length: usize,
    /// The sequences' numbers in the step's global batch, over all ranks and micro-steps. Dropout
    /// masks depend on them.
    pub sequences: Arc<[u64]>,
    /// The offset in the text at which each sequence starts.
    pub starts: Vec<usize>,
    /// Where documents begin that are packed in a sequence; usually none.
    pub documents: Documents,
}

impl Batch {
    /// Joins several batches.
    pub fn concat(batches: &[Batch]) -> Batch {
        Batch {
            inputs: batches.iter().flat_map(|b| b.inputs.iter().copied()).collect(),
            targets: batches.iter().flat_map(|b| b.targets.iter().copied()).collect(),
            length: batches.first().map_or(0, |b| b.length),
            sequences: batches.iter().flat_map(|b| b.sequences.iter().copied()).collect(),
            starts: batches.iter().flat_map(|b| b.starts.iter().copied()).collect(),
            documents: batches.iter().flat_map(|b| b.documents.iter().cloned()).collect(),
        }
    }

    /// The number of tokens that the model learns from.
    pub fn tokens(&self) -> usize {
        self.targets.len()
    }
}

/// Draws one rank's batches.
///
/// Two ranks draw the halves of the batch that one rank would draw:
///
/// ```
/// use shardlab::data::{Batch, Corpus, Sampler, Sampling};
///
/// let corpus = Corpus::embedded()?;
/// let sampling = Sampling::Global;
/// let one = Sampler { sampling, seed: 1337, rank: 0, ranks: 1, batch: 8, block: 16 };
/// let whole = one.batch(&corpus.train, 0, 0);
/// assert_eq!(whole.inputs[1..16], whole.targets[..15]); // each target is the next token
///
/// let halves = [0, 1].map(|rank| {
///     let half = Sampler { rank, ranks: 2, batch: 4, ..one };
///     half.batch(&corpus.train, 0, 0)
/// });
/// assert_ne!(halves[0].inputs, halves[1].inputs);
/// assert_eq!(Batch::concat(&halves), whole);
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    pub sampling: Sampling,
    pub seed: u64,
    pub rank: usize,
    pub ranks: usize,
    /// Sequences per batch.
    pub batch: usize,
    /// Tokens per sequence.
    pub block: usize,
}

impl Sampler {
    /// Draws the batch of one micro-step from `text`, the training split.
    pub fn batch(&self, text: &[u32], step: usize, micro: usize) -> Batch {
        // Partitions need no separate seeds, because the slices do not overlap.
        let (part, seed_of, from) = match self.sampling {
            Sampling::Partition => (self.part(text.len()), 0, 0),
            Sampling::Seeds => (0..text.len(), self.rank, 0),
            Sampling::Global => (0..text.len(), 0, self.rank * self.batch),
        };
        let stream = Stream::new(self.seed, "batches")
            .branch(seed_of as u64)
            .branch(step as u64)
            .branch(micro as u64);
        let first = ((micro * self.ranks + self.rank) * self.batch) as u64;
        draw(
            &text[part.clone()],
            part.start,
            self.block,
            from..from + self.batch,
            first,
            stream,
        )
    }

    /// Draws micro-batch number `n` of a run, counted from 0, with `accumulation` micro-steps per
    /// step.
    pub fn nth(&self, text: &[u32], n: usize, accumulation: usize) -> Batch {
        self.batch(text, n / accumulation, n % accumulation)
    }

    /// Draws batch number `i` of an evaluation. It is the same for any number of ranks, and at
    /// every evaluation.
    pub fn evaluation_batch(&self, text: &[u32], i: usize) -> Batch {
        let stream = Stream::new(self.seed, "evaluation").branch(i as u64);
        draw(text, 0, self.block, 0..self.batch, 0, stream)
    }

    /// This rank's slice of a text that is cut into equal slices.
    pub fn part(&self, len: usize) -> Range<usize> {
        self.rank * len / self.ranks..(self.rank + 1) * len / self.ranks
    }
}

/// Draws the sequences with these `numbers` of a stream, at random offsets of `text`, which must be
/// longer than `block`.
fn draw(
    text: &[u32],
    offset: usize,
    block: usize,
    numbers: Range<usize>,
    first: u64,
    stream: Stream,
) -> Batch {
    let offsets = text.len().saturating_sub(block) as u64;
    let batch = numbers.len();
    let starts: Vec<usize> = numbers.map(|i| stream.below(offsets, i as u64) as usize).collect();
    let windows = |shift| {
        starts
            .iter()
            .flat_map(move |&s| &text[s + shift..s + shift + block])
            .copied()
            .collect()
    };
    Batch {
        inputs: windows(0),
        targets: windows(1),
        length: block,
        sequences: (first..first + batch as u64).collect(),
        starts: starts.iter().map(|s| s + offset).collect(),
        documents: Documents::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn sampler(sampling: Sampling, rank: usize, ranks: usize) -> Sampler {
        Sampler { sampling, seed: 1, rank, ranks, batch: 5, block: 7 }
    }

    fn text() -> Vec<u32> {
        (0..1000).collect()
    }

    #[test]
    fn targets_are_the_next_tokens() {
        let batch = sampler(Sampling::Seeds, 1, 3).batch(&text(), 4, 1);
        assert_eq!((batch.inputs.len(), batch.tokens(), batch.starts.len()), (35, 35, 5));
        assert!(batch.inputs.iter().zip(&batch.targets).all(|(x, y)| x + 1 == *y));
    }

    #[test]
    fn partitions_stay_apart_and_reach_their_ends() {
        for rank in 0..3 {
            let sampler = sampler(Sampling::Partition, rank, 3);
            let part = sampler.part(1000);
            let starts: HashSet<usize> =
                (0..3000).flat_map(|step| sampler.batch(&text(), step, 0).starts).collect();
            assert!(starts.iter().all(|s| part.contains(s) && s + 7 < part.end));
            assert_eq!(starts.len(), part.len() - 7, "every place is drawn");
        }
        let parts: Vec<usize> = (0..3)
            .flat_map(|rank| sampler(Sampling::Partition, rank, 3).part(1000))
            .collect();
        assert_eq!(parts, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn no_two_draws_are_the_same() {
        let mut seen = HashSet::new();
        for (rank, step, micro) in
            [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (1, 2, 1)]
        {
            assert!(
                seen.insert(sampler(Sampling::Seeds, rank, 3).batch(&text(), step, micro).starts)
            );
        }
    }

    #[test]
    fn sequences_are_numbered_over_all_ranks() {
        let numbers: Vec<u64> = (0..2)
            .flat_map(|micro| (0..3).map(move |rank| (micro, rank)))
            .flat_map(|(micro, rank)| {
                sampler(Sampling::Partition, rank, 3)
                    .batch(&text(), 0, micro)
                    .sequences
                    .to_vec()
            })
            .collect();
        assert_eq!(numbers, (0..30).collect::<Vec<u64>>());
    }

    #[test]
    fn a_global_batch_does_not_depend_on_the_number_of_ranks() {
        let draw = |ranks: usize| {
            let of = |rank| {
                let sampler =
                    Sampler { batch: 12 / ranks, ..sampler(Sampling::Global, rank, ranks) };
                sampler.batch(&text(), 3, 1)
            };
            let parts: Vec<Batch> = (0..ranks).map(of).collect();
            Batch::concat(&parts)
        };
        for ranks in [2, 3, 4, 6, 12] {
            assert_eq!(draw(ranks), draw(1), "{ranks} ranks");
        }
    }
}
