//! Packs documents in the sequences of a batch, as trainings on texts of all lengths do.

use super::broken::{Break, shift_after_slicing};
use shardlab::data::Batch;
use shardlab::parallel::Strategy;
use shardlab::tensor::IGNORED;
use shardlab::tensor::random::Stream;
use shardlab::train::{MicroBatch, Observer};

/// Makes so many documents of each drawn sequence: the text is cut at places that depend on the
/// sequence's number, and a document's last position has no target.
#[derive(Clone, Copy)]
pub struct Packed {
    pub documents: usize,
    pub seed: u64,
    /// A mistake with labels, and the ranks that make it.
    pub broken: Option<(Break, Strategy)>,
}

impl Packed {
    /// The positions at which documents begin in sequence number `sequence`, beside 0.
    pub fn starts(&self, length: usize, sequence: u64) -> Vec<usize> {
        let stream = Stream::new(self.seed, "documents").branch(sequence);
        let most = length.saturating_sub(1).max(1) as u64;
        let cut = |i: usize| 1 + stream.below(most, i as u64) as usize;
        let mut starts: Vec<usize> = (1..self.documents).map(cut).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }
}

impl Packed {
    /// Cuts the sequences of a batch into documents.
    pub fn pack(&self, mut batch: Batch) -> Batch {
        let length = batch.length;
        if self.documents > 1 {
            let all = batch.sequences.iter().map(|&sequence| self.starts(length, sequence));
            batch.documents = all.collect();
            for (sequence, starts) in batch.documents.iter().enumerate() {
                for start in starts {
                    batch.targets[sequence * length + start - 1] = IGNORED;
                }
            }
        }
        if let Some((Break::Shift, strategy)) = self.broken {
            shift_after_slicing(&mut batch, strategy.slicing, strategy.context);
        }
        batch
    }
}

impl Observer for Packed {
    fn batch(&mut self, micro_batch: MicroBatch) -> Batch {
        self.pack(micro_batch.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last token of a document, and it alone, has its target in the next one.
    #[test]
    fn the_token_before_a_document_has_no_target() {
        let packed = Packed { documents: 4, seed: 7, broken: None };
        let targets: Vec<u32> = (1..=32).collect();
        let batch = packed.pack(Batch {
            inputs: (0..32).collect(),
            targets: targets.clone(),
            length: 16,
            sequences: [3, 8].into(),
            starts: vec![0, 16],
            documents: Vec::new().into(),
        });
        assert_ne!(batch.documents[0], batch.documents[1]);
        for (i, (found, target)) in batch.targets.iter().zip(targets).enumerate() {
            let is_last = batch.documents[i / 16].contains(&(i % 16 + 1));
            assert_eq!(*found, if is_last { IGNORED } else { target }, "{i}");
        }
    }
}
