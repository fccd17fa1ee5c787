//! The memory of a rank that trains this library's GPT without other ranks.

use super::{DropoutMasks, ModelShape, Shards};

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
    fn alone(&self) -> Shards {
        Shards {
            shape: *self,
            tensor: 1,
            pipeline: 1,
            sequence: false,
            rows: self.vocabulary,
        }
    }

    /// The most bytes that a step's activations take: all that the forward pass leaves, and beside
    /// it what the backward pass works on. That is most at one of three places: at the logits, of
    /// which there are three tensors then, at GELU, or at attention, where one sequence's scores
    /// are computed again.
    fn activations(&self, batch: usize, dropout: DropoutMasks) -> u64 {
        let block = self.block as f64;
        let tokens = batch as f64 * block;
        let d = self.embd as f64;
        let logits = 3.0 * self.vocabulary as f64 * tokens;
        let gelu = 17.0 * d * tokens;
        let attention = 5.0 * d * tokens + 2.0 * block * block;
        let work = 4.0 * logits.max(gelu).max(attention);
        (self.alone().activations(batch, dropout) + work) as u64
    }

    /// Bytes of activations after each part of a step, in f32: before it, after the embedding, each
    /// block and the head, then while each block is at work in the backward pass, and after it.
    /// They are counted over the operations in `tensor` and `model`: the tensors that each leaves
    /// in the graph.
    pub fn activations_over_a_step(
        &self,
        batch: usize,
        dropout: DropoutMasks,
        keep: Keep,
    ) -> Vec<u64> {
        let block = self.block as f64;
        let tokens = batch as f64 * block;
        let d = self.embd as f64;
        let layers = self.layers as f64;
        let alone = self.alone();
        let whole = alone.kept_by_a_block(dropout);
        let [embedding, head] = alone.kept_by_the_ends(dropout);
        // In GELU's backward pass four gradients of fc's width are alive at once (the incoming one,
        // the outgoing one, candle's zero-filled slot and its sum), beside the residual stream's.
        // Attention recomputes one sequence's scores.
        let work = 17.0 * d;
        let scores = 2.0 * block * block;
        let kept = match keep {
            Keep::BlockInputs => d,
            Keep::ToTheEnd | Keep::UntilUsed => whole,
        };
        let backward = |left: f64| match keep {
            Keep::ToTheEnd => embedding + layers * whole + head,
            Keep::UntilUsed if left == layers => embedding + layers * whole + head,
            Keep::UntilUsed => embedding + left * whole,
            Keep::BlockInputs => embedding + left * d + whole,
        };
        // More bytes than 64 bits count are the most that they count.
        let bytes = |per_token: f64, more: f64| (4.0 * (tokens * per_token + more)) as u64;
        let mut step = vec![0];
        step.extend((0..=self.layers).map(|done| bytes(embedding + done as f64 * kept, 0.0)));
        step.push(bytes(embedding + layers * kept + head, 0.0));
        let lefts = (1..=self.layers).rev();
        step.extend(lefts.map(|left| bytes(backward(left as f64) + work, scores)));
        step.push(0);
        step
    }
}

/// How long activations are kept for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Until the whole backward pass has ended, as in this library: candle keeps its graph.
    ToTheEnd,
    /// Until the backward pass has used them, as in PyTorch.
    UntilUsed,
    /// Only each block's input. The backward pass recomputes the rest, block by block.
    BlockInputs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Family;

    fn shape(layers: usize, heads: usize, embd: usize, block: usize) -> ModelShape {
        ModelShape {
            vocabulary: 65,
            block,
            layers,
            heads,
            embd,
            family: Family::Gpt,
        }
    }

    /// What the program `memory` has counted with one rank, in bytes, beside the forward pass's
    /// activations.
    #[test]
    fn the_backward_pass_works_where_it_was_measured() {
        for (shape, batch, measured) in [
            (shape(4, 4, 128, 64), 12, 6_690_172.0),
            (shape(2, 4, 256, 128), 1, 2_232_956.0),
            (shape(4, 4, 8, 64), 8, 400_960.0),
            (shape(1, 4, 64, 512), 1, 2_786_540.0),
            (shape(2, 4, 32, 256), 2, 1_116_156.0),
        ] {
            let forward = shape.activations_over_a_step(batch, DropoutMasks::None, Keep::ToTheEnd)
                [shape.layers + 2];
            let work = (shape.memory(batch, DropoutMasks::None).activations - forward) as f64;
            assert!(
                (work / measured - 1.0).abs() < 0.02,
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

    #[test]
    fn recomputation_keeps_less_and_freeing_early_ends_low() {
        let shape = shape(4, 4, 128, 64);
        let over = |keep| shape.activations_over_a_step(12, DropoutMasks::None, keep);
        let end = over(Keep::ToTheEnd);
        let used = over(Keep::UntilUsed);
        let inputs = over(Keep::BlockInputs);
        // Before the step; embedding, four blocks and head; four blocks backward; after it.
        assert!([&end, &used, &inputs].iter().all(|step| step.len() == 1 + 6 + 4 + 1));
        assert_eq!(
            end[..=7],
            used[..=7],
            "the forward pass keeps the same, and so does the backward pass at its start"
        );
        assert!(
            end[7..11].iter().all(|&bytes| bytes == end[7]) && used[7..].is_sorted_by(|a, b| a > b)
        );
        let peak = |step: &[u64]| step.iter().copied().max().unwrap();
        assert!(peak(&inputs) < peak(&used) * 3 / 5, "{inputs:?}");
        // 18 numbers of 4 bytes per token and unit of width in a block, and a few more.
        let block = (end[3] - end[2]) as f64 / (12 * 64 * 128) as f64;
        assert!((72.0..72.5).contains(&block), "{block}");
    }
}
