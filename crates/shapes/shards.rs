//! A model that tensor ranks and pipeline stages share: what each rank holds and keeps.
//!
//! Activations are those of this library's GPT, whose tensors are f32. Korthikanti et al.
//! (arXiv 2205.05198) count 16-bit activations of a block: sbh(10 + 24/t) with tensor parallelism,
//! sbh 34/t with sequence parallelism as well. Here it is sbh(16 + 48/t) and sbh(8 + 56/t), and
//! less than a percent more for norms and heads: see [`Kept`].

use crate::model::{ModelShape, Portion};
use crate::{AttentionScores, DropoutMasks, Kept};
use std::ops::Range;

/// A model, and how ranks share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shards {
    pub shape: ModelShape,
    pub tensor: usize,
    pub pipeline: usize,
    /// Whether tensor ranks also shard the residual stream, by position.
    pub sequence: bool,
    /// Rows of the token table with its padding, all tensor ranks together.
    pub rows: usize,
}

impl Shards {
    /// Parameters of a rank that holds these layers.
    pub fn parameters(&self, layers: &[Range<usize>]) -> u64 {
        let portion = Portion {
            layers: layers.iter().map(Range::len).sum(),
            dense: layers.iter().map(|layers| self.shape.dense_among(layers)).sum(),
            first: layers.iter().any(|layers| layers.start == 0),
            last: layers.iter().any(|layers| layers.end == self.shape.layers),
            tensor: self.tensor,
            rows: self.rows,
        };
        self.shape.parameters_on_a_rank(&portion) as u64
    }

    /// Tensor ranks that share the residual stream.
    fn stream(&self) -> usize {
        if self.sequence { self.tensor } else { 1 }
    }

    /// Numbers that the forward pass leaves in a block, for each token: one with experts, if the
    /// model has such.
    pub fn kept_by_a_block(&self, dropout: DropoutMasks) -> f64 {
        let [_, (_, layer)] = self.shape.kinds();
        self.kept_by_layer(layer, dropout)
    }

    fn kept_by_layer(&self, layer: usize, dropout: DropoutMasks) -> f64 {
        let kept = Kept::of_layer(&self.shape, layer, 1.0, AttentionScores::None, dropout);
        kept.on_a_rank(self.tensor, self.stream())
    }

    /// Numbers that it leaves before the blocks (the embedding, and its mask) and after them (the
    /// last norm and its statistics, logits and the loss), for each token.
    pub fn kept_by_the_ends(&self, dropout: DropoutMasks) -> [f64; 2] {
        let width = self.shape.embd as f64;
        let stream = self.stream() as f64;
        let vectors = if dropout == DropoutMasks::Kept { 2.0 } else { 1.0 };
        let embedding = vectors * width / stream;
        let head = width + 2.0 / stream + self.rows as f64 / self.tensor as f64 + 1.0;
        [embedding, head]
    }

    /// Bytes of activations after the forward pass of all layers over `batch` sequences, on each
    /// tensor rank.
    pub fn activations(&self, batch: usize, dropout: DropoutMasks) -> f64 {
        let [embedding, head] = self.kept_by_the_ends(dropout);
        let kept = |(blocks, layer)| blocks as f64 * self.kept_by_layer(layer, dropout);
        let blocks: f64 = self.shape.kinds().map(kept).iter().sum();
        4.0 * batch as f64 * self.shape.block as f64 * (embedding + blocks + head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Family;

    #[test]
    fn one_rank_has_all_of_it() {
        let shape = ModelShape {
            vocabulary: 65,
            block: 64,
            layers: 4,
            heads: 4,
            embd: 128,
            family: Family::Gpt,
            experts: None,
        };
        let one = Shards { shape, tensor: 1, pipeline: 1, sequence: false, rows: 65 };
        let all = 0..shape.layers;
        assert_eq!(one.parameters(&[all]), shape.parameters());
        assert_eq!(
            one.parameters(&[0..2, 2..4]),
            shape.parameters(),
            "one table, however many chunks"
        );
        for dropout in [DropoutMasks::None, DropoutMasks::Kept] {
            assert_eq!(one.activations(12, dropout), shape.alone().activations(12, dropout));
        }
    }

    /// The textbook's numbers in bytes of 4: 4 + 12/t, and 2 + 14/t of width.
    #[test]
    fn ranks_keep_what_the_formulas_say() {
        let shape = ModelShape {
            vocabulary: 50_257,
            block: 1024,
            layers: 2,
            heads: 8,
            embd: 1 << 20,
            family: Family::Gpt,
            experts: None,
        };
        for (ranks, sequence, numbers) in [
            (1, false, 16.0),
            (2, false, 10.0),
            (4, false, 7.0),
            (2, true, 9.0),
            (8, true, 3.75),
        ] {
            let shards = Shards { shape, tensor: ranks, pipeline: 1, sequence, rows: 50_432 };
            assert!(
                (shards.kept_by_a_block(DropoutMasks::None) / shape.embd as f64 - numbers).abs()
                    < 1e-4,
                "{shards:?}"
            );
        }
    }
}
