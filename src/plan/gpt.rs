//! A GPT's shape, and what follows from it: parameters, memory, FLOPs.

/// The numbers that define a GPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GptShape {
    /// Distinct tokens.
    pub vocabulary: usize,
    /// The longest sequence, in tokens.
    pub block: usize,
    pub layers: usize,
    pub heads: usize,
    /// Width of the residual stream.
    pub embd: usize,
}

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

impl GptShape {
    /// Matrices: token and position table, and four a block; these decay.
    pub fn decayed(&self) -> (usize, u64) {
        let matrices = 12 * self.embd * self.embd * self.layers;
        (
            2 + 4 * self.layers,
            (matrices + (self.vocabulary + self.block) * self.embd) as u64,
        )
    }

    /// Norm gains: two per block, and the last one. They do not decay.
    pub fn not_decayed(&self) -> (usize, u64) {
        let tensors = 2 * self.layers + 1;
        (tensors, (tensors * self.embd) as u64)
    }

    /// All parameters; the head is the token table once more and not counted again.
    pub fn parameters(&self) -> u64 {
        self.decayed().1 + self.not_decayed().1
    }

    /// The figure that nanoGPT and the seed call num_params: without the position table.
    pub fn num_params(&self) -> u64 {
        self.parameters() - (self.block * self.embd) as u64
    }

    /// FLOPs of forward and backward pass for one token: 6 for every parameter outside the position table, plus
    /// attention's 12 · layers · embd · block (Chowdhery et al., arXiv 2204.02311, appendix B; no discount for causality).
    pub fn flops_per_token(&self) -> u64 {
        6 * self.num_params() + (12 * self.layers * self.embd * self.block) as u64
    }

    /// The memory of one rank that trains on `batch` sequences at a time with AdamW.
    pub fn memory(&self, batch: usize, dropout: bool) -> Memory {
        let n = 4 * self.parameters();
        Memory {
            parameters: n,
            gradients: n,
            optimizer: 2 * n,
            activations: self.activations(batch, dropout),
        }
    }

    /// The most bytes that a step's activations take: all that the forward pass leaves, and beside it what the backward pass works
    /// on. That is most at one of three places: at the logits, of which there are three tensors then, at GELU, or at attention, where
    /// one sequence's scores are computed again.
    fn activations(&self, batch: usize, dropout: bool) -> u64 {
        let wide = |n: usize| n as u128;
        let tokens = wide(batch) * wide(self.block);
        let d = wide(self.embd);
        let block = wide(self.block);
        let logits = 3 * wide(self.vocabulary) * tokens;
        let gelu = 17 * d * tokens;
        let attention = 5 * d * tokens + 2 * block * block;
        let work = 4 * logits.max(gelu).max(attention);
        let forward = self.activations_over_a_step(batch, dropout, Keep::ToTheEnd)[self.layers + 2];
        forward.saturating_add(work.try_into().unwrap_or(u64::MAX))
    }

    /// Bytes of activations after each part of a step, in f32: before it, after the embedding, each block and the head, then
    /// while each block is at work in the backward pass, and after it. They are counted over the operations in `tensor` and
    /// `model`: the tensors that each leaves in the graph.
    pub fn activations_over_a_step(&self, batch: usize, dropout: bool, keep: Keep) -> Vec<u64> {
        // In u128: a shape that someone asks for can take more bytes than 64 bits count.
        let wide = |n: usize| n as u128;
        let tokens = wide(batch) * wide(self.block);
        let d = wide(self.embd);
        let layers = wide(self.layers);
        let dropped = if dropout { d } else { 0 };
        // Norm, qkv (3), attention, proj, residual; norm, fc (4), gelu (4), out, residual. Then the statistics of two norms, and
        // one number per head and row of attention.
        let block = 18 * d + 2 * dropped + 4 + wide(self.heads);
        let embedding = d + dropped;
        let head = d + 2 + wide(self.vocabulary) + 1;
        // In GELU's backward pass four gradients of fc's width are alive at once (the incoming one, the outgoing one, candle's
        // zero-filled slot and its sum), beside the residual stream's. Attention recomputes one sequence's scores.
        let work = 17 * d;
        let scores = 2 * wide(self.block) * wide(self.block);
        let kept = if keep == Keep::BlockInputs { d } else { block };
        let backward = |left: u128| match keep {
            Keep::ToTheEnd => embedding + layers * block + head,
            Keep::UntilUsed => embedding + left * block + if left == layers { head } else { 0 },
            Keep::BlockInputs => embedding + left * d + block,
        };
        let bytes = |per_token: u128, more: u128| {
            (4 * (tokens * per_token + more))
                .try_into()
                .unwrap_or(u64::MAX)
        };
        let forward = (0..=layers).map(|done| bytes(embedding + done * kept, 0));
        let head = bytes(embedding + layers * kept + head, 0);
        let backward = (1..=layers)
            .rev()
            .map(|left| bytes(backward(left) + work, scores));
        std::iter::once(0)
            .chain(forward)
            .chain([head])
            .chain(backward)
            .chain([0])
            .collect()
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

    fn shape(layers: usize, heads: usize, embd: usize, block: usize) -> GptShape {
        GptShape {
            vocabulary: 65,
            block,
            layers,
            heads,
            embd,
        }
    }

    /// Figures of the seed (wordplay) and of nanoGPT's char-level configurations.
    #[test]
    fn published_counts() {
        let baby = shape(4, 4, 128, 64);
        let char = shape(6, 6, 384, 256);
        let wordplay = shape(12, 12, 768, 1024);
        assert_eq!((baby.num_params(), baby.parameters()), (795_904, 804_096));
        assert_eq!(
            (char.num_params(), char.parameters()),
            (10_646_784, 10_745_088)
        );
        assert_eq!(
            (wordplay.num_params(), wordplay.parameters()),
            (85_003_776, 85_790_208)
        );
        assert_eq!(wordplay.decayed(), (50, 85_771_008));
        assert_eq!(wordplay.not_decayed(), (25, 19_200));
        assert_eq!(baby.flops_per_token(), 5_168_640);
        assert_eq!(char.flops_per_token(), 70_958_592);
    }

    /// What the program `memory` has counted with one rank, in bytes, beside the forward pass's activations.
    #[test]
    fn the_backward_pass_works_where_it_was_measured() {
        for (shape, batch, measured) in [
            (shape(4, 4, 128, 64), 12, 6_690_172.0),
            (shape(2, 4, 256, 128), 1, 2_232_956.0),
            (shape(4, 4, 8, 64), 8, 400_960.0),
            (shape(1, 4, 64, 512), 1, 2_786_540.0),
            (shape(2, 4, 32, 256), 2, 1_116_156.0),
        ] {
            let forward =
                shape.activations_over_a_step(batch, false, Keep::ToTheEnd)[shape.layers + 2];
            let work = (shape.memory(batch, false).activations - forward) as f64;
            assert!(
                (work / measured - 1.0).abs() < 0.02,
                "{shape:?}: {work} planned, {measured} measured"
            );
        }
    }

    #[test]
    fn absurd_shapes_do_not_overflow() {
        let most = shape(1 << 16, 1, 1 << 16, 1 << 16);
        assert_eq!(most.memory(1 << 20, true).total(), u64::MAX);
        assert!(most.flops_per_token() > most.parameters());
    }

    #[test]
    fn memory_is_sixteen_bytes_a_parameter_and_grows_with_the_batch() {
        let memory = shape(4, 4, 128, 64).memory(12, false);
        assert_eq!(memory.total() - memory.activations, 16 * 804_096);
        let twice = shape(4, 4, 128, 64).memory(24, false);
        assert!(twice.activations > memory.activations * 19 / 10);
    }

    #[test]
    fn recomputation_keeps_less_and_freeing_early_ends_low() {
        let shape = shape(4, 4, 128, 64);
        let over = |keep| shape.activations_over_a_step(12, false, keep);
        let end = over(Keep::ToTheEnd);
        let used = over(Keep::UntilUsed);
        let inputs = over(Keep::BlockInputs);
        // Before the step; embedding, four blocks and head; four blocks backward; after it.
        assert!(
            [&end, &used, &inputs]
                .iter()
                .all(|step| step.len() == 1 + 6 + 4 + 1)
        );
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
