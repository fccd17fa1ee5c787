//! Samples without a download: uniform random numbers, as functions of (seed, rank, step).

use crate::tensor::random::Stream;

/// Draws one rank's samples.
#[derive(Clone, Copy, Debug)]
pub struct Uniform {
    pub seed: u64,
    pub rank: usize,
    /// Samples per batch.
    pub batch: usize,
    /// Numbers per sample.
    pub width: usize,
}

impl Uniform {
    /// Draws the batch of one step: `batch` samples one after the other, each of `width` numbers in
    /// [0, 1).
    pub fn batch(&self, step: usize) -> Vec<f32> {
        let stream = Stream::new(self.seed, "uniform").branch(self.rank as u64).branch(step as u64);
        (0..(self.batch * self.width) as u64).map(|i| stream.uniform_f32(i)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn batches_differ_by_seed_rank_and_step_and_can_be_drawn_again() {
        let batch = |seed, rank, step| Uniform { seed, rank, batch: 3, width: 5 }.batch(step);
        assert_eq!(batch(1, 2, 3), batch(1, 2, 3));
        let mut seen = HashSet::new();
        for (seed, rank, step) in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)] {
            let uniform = Uniform { seed, rank, batch: 3, width: 5 };
            let x = uniform.batch(step);
            assert_eq!(x.len(), 15);
            assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
            assert!(
                x.chunks(5)
                    .all(|sample| seen
                        .insert(sample.iter().map(|x| x.to_bits()).collect::<Vec<_>>()))
            );
        }
    }
}
