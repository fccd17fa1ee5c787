//! Bad batches: micro-batches whose text is damaged.

use shardlab::data::Batch;
use shardlab::tensor::random::Stream;
use shardlab::train::Config;
use std::ops::{Range, RangeInclusive};

/// Replaces each token of some micro-batches by a random one, as if a file were damaged. The damage
/// belongs to the data: a micro-batch is bad in whichever step a run draws it. The sampler's own
/// draws stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// Micro-batches of each rank, counted from 0.
    pub draws: Range<usize>,
    /// Number of different tokens.
    pub vocabulary: usize,
}

impl Poison {
    /// The bad steps of a run that skips nothing.
    pub fn steps(&self, config: &Config) -> RangeInclusive<usize> {
        let last = (self.draws.end / config.grad_accum).min(config.steps);
        self.draws.start / config.grad_accum + 1..=if self.draws.is_empty() { 0 } else { last }
    }

    /// Micro-batch number `n` of rank `rank`, damaged if it is one of the bad ones.
    pub fn apply(&self, rank: usize, n: usize, mut batch: Batch) -> Batch {
        if !self.draws.contains(&n) {
            return batch;
        }
        let stream = Stream::new(1, "poison").branch(rank as u64).branch(n as u64);
        let token = |sequence: usize, place: usize| {
            let i = sequence * (batch.length + 1) + place;
            stream.below(self.vocabulary as u64, i as u64) as u32
        };
        for i in 0..batch.inputs.len() {
            let sequence = i / batch.length;
            let place = i % batch.length;
            // A target is still the next token.
            (batch.inputs[i], batch.targets[i]) =
                (token(sequence, place), token(sequence, place + 1));
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::{Sampler, Sampling};

    #[test]
    fn damage_stays_with_its_data() {
        let sampler = Sampler {
            sampling: Sampling::Seeds,
            seed: 1,
            rank: 0,
            ranks: 2,
            batch: 2,
            block: 5,
        };
        let text: Vec<u32> = (0..100).map(|i| i % 7).collect();
        let poison = Poison { draws: 3..5, vocabulary: 7 };
        let drawn = |rank, n| poison.apply(rank, n, sampler.nth(&text, n, 2));
        for n in 0..8 {
            let clean = sampler.nth(&text, n, 2);
            let batch = drawn(0, n);
            assert_eq!(batch == clean, !(3..5).contains(&n), "{n}");
            assert_eq!(batch, drawn(0, n), "{n}: twice the same");
            assert_eq!((&batch.starts, &batch.sequences), (&clean.starts, &clean.sequences));
            assert!(batch.inputs.iter().chain(&batch.targets).all(|&token| token < 7));
            for (inputs, targets) in batch.inputs.chunks(5).zip(batch.targets.chunks(5)) {
                assert_eq!(inputs[1..], targets[..4], "{n}: targets are the next tokens");
            }
        }
        assert_ne!(drawn(0, 3).inputs, drawn(0, 4).inputs);
        assert_ne!(drawn(0, 3).inputs, drawn(1, 3).inputs);
    }
}
