//! The data: what a part draws, made of the text, and one step whose tokens are noise.

use crate::parts::batches::Batches;
use crate::plan::Plan;
use shardlab::data::Batch;
use shardlab::tensor::random::Stream;
use shardlab::train::Config;

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
    pub fn batch(&self, first: usize) -> Batch {
        let Config { batch, grad_accum, shape, seed, .. } = self.plan.config;
        let samples = self.plan.config.samples_per_step();
        let step = first / samples + 1;
        let i = first % samples / batch;
        let (stream, micro) = (i / grad_accum, i % grad_accum);
        let draw = self.plan.draw(self.text.len());
        let starts = (self.batches)(&draw, stream, (step - 1) * grad_accum + micro);
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
            documents: Default::default(),
        };
        if step == self.plan.poison {
            spoil(&mut drawn, seed, shape.vocabulary, (stream, micro));
        }
        drawn
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
