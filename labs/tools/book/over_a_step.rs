//! Activations over one step, for the figures of what is kept when.

use shardlab::plan::{DropoutMasks, ModelShape};

/// What is kept for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Everything, until the backward pass has used it.
    UntilUsed,
    /// Only each block's input. The backward pass recomputes the rest, block by block.
    BlockInputs,
}

/// Bytes of activations in each part of a step, in f32: before it, after the embedding and each
/// block, while the head is at work in both passes, then while each block is in the backward pass,
/// and after it. They are counted over the operations in `tensor` and `model`: the numbers that
/// each leaves on the tape.
pub fn activations_over_a_step(
    shape: &ModelShape,
    batch: usize,
    dropout: DropoutMasks,
    keep: Keep,
) -> Vec<u64> {
    let block = shape.block as f64;
    let tokens = batch as f64 * block;
    let d = shape.embd as f64;
    let layers = shape.layers as f64;
    let alone = shape.alone();
    let whole = alone.kept_by_a_block(dropout);
    let [embedding, head] = alone.kept_by_the_ends(dropout);
    // The logits' gradient is beside them. A block's backward pass begins with the stream's
    // gradient in the place of what was behind the block, and gets another one of fc's width from
    // the matrix after GELU. Attention computes one sequence's scores again, when ten of the
    // block's sixteen parts are freed and the three of qkv's gradient have come.
    let of_head = (shape.vocabulary as f64).max(d) * tokens;
    let scores = 2.0 * block * (block + d / shape.heads as f64);
    let work = (4.0 * d * tokens).max(scores - 7.0 * d * tokens);
    let kept = match keep {
        Keep::UntilUsed => whole,
        Keep::BlockInputs => d,
    };
    // More bytes than 64 bits count are the most that they count.
    let bytes = |per_token: f64, more: f64| (4.0 * (tokens * per_token + more)) as u64;
    let mut step = vec![0];
    step.extend((0..=shape.layers).map(|done| bytes(embedding + done as f64 * kept, 0.0)));
    step.push(bytes(embedding + layers * kept + head, of_head));
    let lefts = (1..=shape.layers).rev();
    step.extend(lefts.map(|left| bytes(embedding + (left - 1) as f64 * kept + whole, work)));
    step.push(0);
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::plan::Family;

    #[test]
    fn recomputation_keeps_less_and_freeing_early_ends_low() {
        let shape = ModelShape {
            vocabulary: 65,
            block: 64,
            layers: 4,
            heads: 4,
            embd: 128,
            family: Family::Gpt,
            experts: None,
        };
        let over = |keep| activations_over_a_step(&shape, 12, DropoutMasks::None, keep);
        let used = over(Keep::UntilUsed);
        let inputs = over(Keep::BlockInputs);
        // Before the step; embedding, four blocks and head; four blocks backward; after it.
        assert!([&used, &inputs].iter().all(|step| step.len() == 1 + 6 + 4 + 1));
        assert!([&used, &inputs].iter().all(|step| step[7..].is_sorted_by(|a, b| a > b)));
        let peak = |step: &[u64]| step.iter().copied().max().unwrap();
        assert_eq!(peak(&used), shape.memory(12, DropoutMasks::None).activations);
        assert!(peak(&inputs) < peak(&used) * 3 / 5, "{inputs:?}");
        // 16 numbers of 4 bytes per token and unit of width in a block, and a few more.
        let block = (used[3] - used[2]) as f64 / (12 * 64 * 128) as f64;
        assert!((64.0..64.5).contains(&block), "{block}");
    }
}
