//! Packs documents in the sequences of a batch, as trainings on texts of all lengths do.

use super::broken::{Break, shift_after_slicing};
use shardlab::data::Batch;
use shardlab::error::BadInput;
use shardlab::parallel::Strategy;
use shardlab::tensor::IGNORED;
use shardlab::tensor::random::Stream;
use shardlab::train::{Config, MicroBatch, Observer};

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

    /// Refuses a mistake with the ranks' counts of targets where all have one count.
    ///
    /// # Errors
    /// If the first batch, which the checks look at, has as many targets on each rank.
    pub fn ensure_counts_differ(
        &self,
        config: &Config,
        strategy: &Strategy,
        text: &[u32],
    ) -> Result<(), BadInput> {
        let batch = self.pack(config.sampler(0).batch(text, 0, 0));
        let count = |rank| {
            let slices = strategy.slicing.slices(batch.length, strategy.context, rank);
            let rows: Vec<usize> = slices.positions(slices.rows()).collect();
            let sequences = batch.targets.chunks(batch.length);
            sequences
                .map(|targets| rows.iter().filter(|&&row| targets[row] != IGNORED).count())
                .sum()
        };
        let counts: Vec<usize> = (0..strategy.context).map(count).collect();
        if counts.iter().any(|count| *count != counts[0]) {
            return Ok(());
        }
        let what = format!("each rank has {} targets in the first batch", counts[0]);
        let help = match self.documents {
            1 => "give --documents 2 or more: the last token of each has no target",
            _ => "give another --seed, or more --documents: they end in other places then",
        };
        Err(BadInput::new(format!("{what}: to divide by its own count is no mistake"), help))
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
    use shardlab::data::Corpus;
    use shardlab::parallel::context::Slicing;

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
    /// Whole documents end nowhere within, so all ranks have as many targets.
    #[test]
    fn equal_counts_are_no_mistake() {
        let corpus = Corpus::embedded().unwrap();
        let config = Config::small(1, &corpus);
        for slicing in [Slicing::ZigZag, Slicing::Contiguous] {
            let strategy = Strategy { context: 2, slicing, ..Strategy::SINGLE };
            let with = |documents, seed| {
                let packed = Packed { documents, seed, broken: None };
                packed.ensure_counts_differ(&config, &strategy, &corpus.train).is_ok()
            };
            assert!((0..10).all(|seed| !with(1, seed)));
            // By chance they are equal with some seeds, and not with others.
            assert!((0..20).any(|seed| with(2, seed)), "{slicing:?}");
            assert!((0..20).any(|seed| !with(3, seed)), "{slicing:?}");
        }
    }
}
