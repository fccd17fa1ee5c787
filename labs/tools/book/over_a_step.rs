//! Activations over one step, for the figures of what is kept when.

use shardlab::plan::{DropoutMasks, ModelShape};

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

/// Bytes of activations after each part of a step, in f32: before it, after the embedding, each
/// block and the head, then while each block is at work in the backward pass, and after it.
/// They are counted over the operations in `tensor` and `model`: the tensors that each leaves
/// in the graph.
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
    // GELU's backward pass gets a gradient of fc's width, and changes the slope that it has kept
    // into its own; then both are freed, also where candle keeps the rest. Attention recomputes one
    // sequence's scores, beside the gradients of qkv and of its result. Both are beside the
    // stream's gradient, and the first beside a dropped copy of it.
    let slope = 4.0 * d;
    let scores = 2.0 * block * block;
    let dropped = if dropout == DropoutMasks::Kept { d } else { 0.0 };
    let work = ((5.0 * d + dropped) * tokens).max((5.0 * d - slope) * tokens + scores);
    let kept = match keep {
        Keep::BlockInputs => d,
        Keep::ToTheEnd | Keep::UntilUsed => whole,
    };
    let backward = |left: f64| match keep {
        Keep::ToTheEnd => embedding + layers * whole + head - (layers - left) * slope,
        Keep::UntilUsed if left == layers => embedding + layers * whole + head,
        Keep::UntilUsed => embedding + left * whole,
        Keep::BlockInputs => embedding + left * d + whole,
    };
    // More bytes than 64 bits count are the most that they count.
    let bytes = |per_token: f64, more: f64| (4.0 * (tokens * per_token + more)) as u64;
    let mut step = vec![0];
    step.extend((0..=shape.layers).map(|done| bytes(embedding + done as f64 * kept, 0.0)));
    step.push(bytes(embedding + layers * kept + head, 0.0));
    let lefts = (1..=shape.layers).rev();
    step.extend(lefts.map(|left| bytes(backward(left as f64), work)));
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
        };
        let over = |keep| activations_over_a_step(&shape, 12, DropoutMasks::None, keep);
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
        assert!([&end, &used].iter().all(|step| step[7..].is_sorted_by(|a, b| a > b)));
        // candle's graph has lost nothing but GELU's slopes: 3 of 4, of 16 bytes each.
        assert_eq!(end[7] - end[10], 3 * 16 * 12 * 64 * 128);
        let peak = |step: &[u64]| step.iter().copied().max().unwrap();
        assert!(peak(&inputs) < peak(&used) * 3 / 5, "{inputs:?}");
        // 16 numbers of 4 bytes per token and unit of width in a block, and a few more.
        let block = (end[3] - end[2]) as f64 / (12 * 64 * 128) as f64;
        assert!((64.0..64.5).contains(&block), "{block}");
    }
}
