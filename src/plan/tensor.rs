//! A GPT whose matrices tensor ranks share: what each of them holds, keeps, calls and sends.
//!
//! The formulas count what this library stores in f32. Korthikanti et al. (arXiv 2205.05198) count 16-bit activations of a
//! block: sbh(10 + 24/t) with tensor parallelism, sbh 34/t with sequence parallelism as well. Here it is sbh(24 + 48/t) and
//! sbh(8 + 64/t), and less than a percent more for norms and heads. Attention recomputes its scores, so their 5as/h is
//! missing. The 8 are the two gathered inputs of column-parallel matrices, which Megatron-LM gathers again in the backward
//! pass.

use super::GptShape;

/// A model, and how ranks share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorShards {
    pub shape: GptShape,
    pub ranks: usize,
    /// Whether the ranks also shard the residual stream, by position.
    pub sequence: bool,
    /// Rows of the token table with its padding, all ranks together.
    pub rows: usize,
}

impl TensorShards {
    /// Parameters on each rank: 1/t of all matrices and of the padded table, and all positions and gains.
    pub fn parameters(&self) -> u64 {
        let GptShape {
            layers,
            embd,
            block,
            ..
        } = self.shape;
        let shared = 12 * embd * embd * layers + self.rows * embd;
        (shared / self.ranks + block * embd) as u64 + self.shape.not_decayed().1
    }

    /// Numbers that the forward pass leaves in each block, for each token and unit of width.
    pub fn kept_by_a_block(&self, dropout: bool) -> f64 {
        let t = self.ranks as f64;
        let width = self.shape.embd as f64;
        let stream = if self.sequence { t } else { 1.0 };
        // The column-parallel matrices' inputs; two results and two sums of the stream; qkv, attention, fc and GELU.
        let dropped = if dropout { 2.0 } else { 0.0 };
        2.0 + (4.0 + dropped) / stream
            + 12.0 / t
            + (4.0 / stream + self.shape.heads as f64 / t) / width
    }

    /// Bytes of activations after the forward pass over `batch` sequences, on each rank.
    pub fn activations(&self, batch: usize, dropout: bool) -> f64 {
        let GptShape {
            layers,
            embd,
            block,
            ..
        } = self.shape;
        let t = self.ranks as f64;
        let width = embd as f64;
        let stream = if self.sequence { t } else { 1.0 };
        let embedding = if dropout { 2.0 } else { 1.0 } * width / stream;
        let head = width + 2.0 / stream + self.rows as f64 / t + 1.0;
        4.0 * (batch * block) as f64
            * (embedding + layers as f64 * width * self.kept_by_a_block(dropout) + head)
    }

    /// Collective calls in the forward and in the backward pass: all-reduces, or with sequence parallelism all-gathers and
    /// reduce-scatters. The loss's two small all-reduces are not counted.
    pub fn calls(&self) -> [usize; 2] {
        match (self.ranks, self.sequence, self.shape.layers) {
            (1, ..) => [0, 0],
            (_, false, layers) => [2 * layers + 1, 2 * layers + 1],
            (_, true, layers) => [4 * layers + 2, 4 * layers + 2],
        }
    }

    /// Elements of the parameters that every rank holds.
    pub fn copies(&self) -> usize {
        self.shape.block * self.shape.embd + self.shape.not_decayed().1 as usize
    }

    /// Bytes that each rank sends for a step over `batch` sequences, in any number of micro-steps: activations and their
    /// gradients, three numbers for each token's loss, and with sequence parallelism the gradients of `copies`.
    pub fn sent(&self, batch: usize, copies: usize) -> f64 {
        let GptShape {
            layers,
            embd,
            block,
            ..
        } = self.shape;
        let copies = if self.sequence { copies } else { 0 };
        let numbers = batch * block * ((4 * layers + 2) * embd + 3) + copies;
        2.0 * (self.ranks as f64 - 1.0) / self.ranks as f64 * 4.0 * numbers as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Keep;

    #[test]
    fn one_rank_has_all_of_it() {
        let shape = GptShape {
            vocabulary: 65,
            block: 64,
            layers: 4,
            heads: 4,
            embd: 128,
        };
        let one = TensorShards {
            shape,
            ranks: 1,
            sequence: false,
            rows: 65,
        };
        assert_eq!(one.parameters(), shape.parameters());
        for dropout in [false, true] {
            let forward =
                shape.activations_over_a_step(12, dropout, Keep::ToTheEnd)[shape.layers + 2];
            assert_eq!(one.activations(12, dropout), forward as f64);
        }
        assert_eq!((one.calls(), one.sent(12, one.copies())), ([0, 0], 0.0));
    }

    /// The textbook's numbers in bytes of 4: 6 + 12/t, and 2 + 16/t of width.
    #[test]
    fn ranks_keep_what_the_formulas_say() {
        let shape = GptShape {
            vocabulary: 50_257,
            block: 1024,
            layers: 2,
            heads: 8,
            embd: 1 << 20,
        };
        for (ranks, sequence, numbers) in [
            (1, false, 18.0),
            (2, false, 12.0),
            (4, false, 9.0),
            (2, true, 10.0),
            (8, true, 4.0),
        ] {
            let shards = TensorShards {
                shape,
                ranks,
                sequence,
                rows: 50_432,
            };
            assert!(
                (shards.kept_by_a_block(false) - numbers).abs() < 1e-4,
                "{shards:?}"
            );
        }
        let two = TensorShards {
            shape,
            ranks: 2,
            sequence: false,
            rows: 50_432,
        };
        assert_eq!(two.calls(), [5, 5]);
        assert_eq!(
            TensorShards {
                sequence: true,
                ..two
            }
            .calls(),
            [10, 10]
        );
    }
}
