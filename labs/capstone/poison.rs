//! The data: what a part draws, made of the text, and one step whose tokens are noise.

use crate::meter::Meter;
use crate::parts::Part;
use crate::parts::batches::{Batches, Draw};
use crate::plan::{Plan, STREAMS};
use anyhow::{Result, ensure};
use shardlab::data::Batch;
use shardlab::tensor::random::Stream;

/// Draws micro-batches, by the reader's rule or the library's.
pub struct Data<'a> {
    pub plan: &'a Plan,
    pub text: &'a [u32],
    pub batches: Batches,
}

impl Data<'_> {
    /// The micro-batch that begins with sequence `first` of the run. Of a step's sequences, those
    /// of stream 0 come first. Both lives ask by this number, so a step has the same data whatever
    /// the mesh is.
    pub fn batch(&self, meter: &Meter, first: usize) -> Result<Batch> {
        let Plan { batch, accumulation, shape, seed, poison, .. } = *self.plan;
        ensure!(
            first.is_multiple_of(batch),
            "{} read from sequence {first}; micro-batches have {batch}",
            Part::Skip.exercise()
        );
        let step = first / self.plan.samples() + 1;
        let i = first % self.plan.samples() / batch;
        let (stream, micro) = (i / accumulation, i % accumulation);
        let draw = Draw {
            seed,
            ranks: STREAMS,
            batch,
            block: shape.block,
            tokens: self.text.len(),
        };
        let number = (step - 1) * accumulation + micro;
        let starts = meter.part(Part::Batches, || (self.batches)(&draw, stream, number));
        ensure!(
            starts.len() == batch,
            "{} drew {} sequences for a micro-batch of {batch}",
            Part::Batches.exercise(),
            starts.len()
        );
        let last = self.text.len() - shape.block - 1;
        if let Some(start) = starts.iter().find(|&&start| start > last) {
            anyhow::bail!(
                "{} drew a sequence that starts at token {start}; the last one that fits starts at {last}",
                Part::Batches.exercise()
            );
        }
        let window = |shift: usize| -> Vec<u32> {
            let sequence = |&start: &usize| &self.text[start + shift..][..shape.block];
            starts.iter().flat_map(sequence).copied().collect()
        };
        let mut drawn = Batch {
            inputs: window(0),
            targets: window(1),
            length: shape.block,
            sequences: (0..batch as u64).collect(),
            starts,
        };
        if step == poison {
            spoil(&mut drawn, seed, shape.vocabulary, (stream, micro));
        }
        Ok(drawn)
    }
}

/// Replaces all tokens by random ones.
fn spoil(batch: &mut Batch, seed: u64, vocabulary: usize, (stream, micro): (usize, usize)) {
    let noise = Stream::new(seed, "poison").branch(stream as u64).branch(micro as u64);
    let tokens = batch.inputs.iter_mut().chain(&mut batch.targets);
    for (i, token) in tokens.enumerate() {
        *token = noise.below(vocabulary as u64, i as u64) as u32;
    }
}
