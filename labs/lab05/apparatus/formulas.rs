//! What tensor ranks call and send, by formulas for this library's GPT.

use shardlab::plan::{ModelShape, Shards};

/// Collective calls in the forward and in the backward pass: all-reduces, or with sequence
/// parallelism all-gathers and reduce-scatters. The loss's two small all-reduces are not counted.
pub fn calls(shards: &Shards) -> [usize; 2] {
    match (shards.tensor, shards.sequence, shards.shape.layers) {
        (1, ..) => [0, 0],
        (_, false, layers) => [2 * layers + 1, 2 * layers + 1],
        (_, true, layers) => [4 * layers + 2, 4 * layers + 2],
    }
}

/// Elements of the parameters that every rank holds.
pub fn copies(shape: &ModelShape) -> usize {
    shape.positions() as usize + shape.not_decayed().1 as usize
}

/// Bytes that each rank sends for a step over `batch` sequences, in any number of micro-steps:
/// activations and their gradients, three f32 for each token's loss, and with sequence parallelism
/// the gradients of `copies`. `bytes`: of an activation, and of a parameter's gradient.
pub fn sent(shards: &Shards, batch: usize, copies: usize, bytes: [usize; 2]) -> f64 {
    let ModelShape { layers, embd, block, .. } = shards.shape;
    let copies = if shards.sequence { copies } else { 0 };
    let each = bytes[0] * (4 * layers + 2) * embd + 4 * 3;
    let all = batch * block * each + bytes[1] * copies;
    let tensor = shards.tensor as f64;
    2.0 * (tensor - 1.0) / tensor * all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_calls_nobody_and_sequence_parallelism_doubles_the_calls() {
        let shape = ModelShape::gpt2(2, 64, 8, 65, 64);
        let one = Shards { shape, tensor: 1, pipeline: 1, sequence: false, rows: 65 };
        assert_eq!((calls(&one), sent(&one, 12, copies(&shape), [4, 4])), ([0, 0], 0.0));
        let two = Shards { tensor: 2, rows: 66, ..one };
        assert_eq!(calls(&two), [5, 5]);
        assert_eq!(calls(&Shards { sequence: true, ..two }), [10, 10]);
    }
}
