//! The memory of a rank that trains this library's GPT without other ranks.

use crate::model::ModelShape;
use crate::{DropoutMasks, Shards};

/// Bytes that one rank holds while it trains in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    pub parameters: u64,
    pub gradients: u64,
    /// Adam's two moments.
    pub optimizer: u64,
    /// Bytes that the forward pass keeps for the backward pass, plus the backward pass's own peak.
    pub activations: u64,
}

impl Memory {
    pub fn total(&self) -> u64 {
        let held = self.parameters + self.gradients + self.optimizer;
        held.saturating_add(self.activations)
    }
}

impl ModelShape {
    /// The memory of one rank that trains on `batch` sequences at a time with AdamW.
    pub fn memory(&self, batch: usize, dropout: DropoutMasks) -> Memory {
        let n = 4 * self.parameters();
        Memory {
            parameters: n,
            gradients: n,
            optimizer: 2 * n,
            activations: self.activations(batch, dropout),
        }
    }

    /// One rank has it all.
    pub fn alone(&self) -> Shards {
        Shards {
            shape: *self,
            tensor: 1,
            pipeline: 1,
            sequence: false,
            rows: self.vocabulary,
        }
    }

    /// The most bytes that a step's activations take: all that the forward pass leaves, and beside
    /// it what the backward pass works on. That pass frees what it has used, so it is most at one
    /// of three places near its beginning: at the gradient of the logits, or of the head's input;
    /// at that of GELU's result in the last block, when the logits are gone and the stream's
    /// gradient has taken the place of the last norm's input; or at attention there, where one
    /// sequence's scores are computed again, beside a head's keys and values that are turned, and
    /// all of the MLP is gone. What a matrix product copies for itself is scratch
    /// (`allocator::scratch`), and not counted here.
    fn activations(&self, batch: usize, dropout: DropoutMasks) -> u64 {
        let block = self.block as f64;
        let tokens = batch as f64 * block;
        let vocabulary = self.vocabulary as f64;
        let d = self.embd as f64;
        let head = vocabulary.max(d) * tokens;
        let behind = vocabulary + d + 3.0; // with three statistics
        let gelu = (4.0 * d - behind) * tokens;
        let scores = 2.0 * block * (block + d / self.heads as f64);
        let attention = scores - (7.0 * d + behind) * tokens;
        let work = 4.0 * head.max(gelu).max(attention);
        (self.alone().activations(batch, dropout) + work) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Family;

    fn shape(layers: usize, heads: usize, embd: usize, block: usize) -> ModelShape {
        ModelShape {
            vocabulary: 65,
            block,
            layers,
            heads,
            embd,
            family: Family::Gpt,
            experts: None,
        }
    }

    /// What an allocator has counted with one rank, in bytes, above what the forward pass
    /// left.
    #[test]
    fn the_backward_pass_works_where_it_was_measured() {
        let wide = |shape| ModelShape { vocabulary: 2000, ..shape };
        for (shape, batch, measured) in [
            (shape(2, 4, 256, 128), 1, 357_332.0),
            (shape(2, 2, 256, 64), 32, 5_725_652.0),
            (wide(shape(2, 2, 32, 64)), 12, 6_144_200.0),
            (wide(shape(2, 2, 160, 64)), 12, 6_144_200.0),
            (shape(1, 4, 64, 512), 1, 966_892.0),
            (shape(2, 2, 32, 256), 2, 133_320.0),
        ] {
            let forward = shape.alone().activations(batch, DropoutMasks::None);
            let work = shape.memory(batch, DropoutMasks::None).activations as f64 - forward;
            assert!(
                (work / measured - 1.0).abs() < 0.01,
                "{shape:?}: {work} planned, {measured} measured"
            );
        }
    }

    #[test]
    fn absurd_shapes_do_not_overflow() {
        let most = shape(1 << 16, 1, 1 << 16, 1 << 16);
        assert_eq!(most.memory(1 << 20, DropoutMasks::Kept).total(), u64::MAX);
        assert!(most.flops_per_token() > most.parameters());
    }

    #[test]
    fn memory_is_sixteen_bytes_a_parameter_and_grows_with_the_batch() {
        let memory = shape(4, 4, 128, 64).memory(12, DropoutMasks::None);
        assert_eq!(memory.total() - memory.activations, 16 * 804_096);
        let twice = shape(4, 4, 128, 64).memory(24, DropoutMasks::None);
        assert!(twice.activations > memory.activations * 19 / 10);
    }
}
