//! Activations that one block keeps for its backward pass.
//!
//! Source: Korthikanti et al. (arXiv 2205.05198), table 2, for GPT-2 and GPT-3: sbh(10 + 24/t)
//! bytes with tensor parallelism, sbh 34/t with sequence parallelism as well, and 5as/h for the
//! scores. The counts for a Llama, for any other dense decoder and for this library's GPT go over
//! their operations in the same way.

use crate::model::ModelShape;

/// The masks of dropout, which the backward pass needs where a training applies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropoutMasks {
    None,
    Kept,
}

impl DropoutMasks {
    /// Those of dropout with this rate: none at 0.
    pub fn of(rate: f64) -> DropoutMasks {
        if rate > 0.0 { Self::Kept } else { Self::None }
    }
}

/// Attention's scores and what softmax makes of them, which are as large as the square of the
/// sequence's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionScores {
    /// FlashAttention computes them once more in the backward pass.
    None,
    Kept,
}

/// The activations that one block keeps: bytes for each token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// The block's input, which is the residual stream.
    pub input: f64,
    /// On every tensor rank, with and without sequence parallelism.
    pub whole: f64,
    /// Sequence parallelism divides these: the residual stream, norms, dropout masks.
    pub stream: f64,
    /// Tensor ranks divide these: heads, and the MLP's inner width.
    pub divided: f64,
    /// Attention's scores, which tensor ranks divide as well.
    pub scores: f64,
}

impl Kept {
    /// A block of `shape`, whose numbers have `element` bytes: one with experts, if it has such.
    pub fn of(
        shape: &ModelShape,
        element: f64,
        scores: AttentionScores,
        dropout: DropoutMasks,
    ) -> Kept {
        let [_, (_, layer)] = shape.kinds();
        Kept::of_layer(shape, layer, element, scores, dropout)
    }

    /// Block `layer` of `shape`, which may have one MLP where others have experts.
    pub fn of_layer(
        shape: &ModelShape,
        layer: usize,
        element: f64,
        scores: AttentionScores,
        dropout: DropoutMasks,
    ) -> Kept {
        let h = shape.embd as f64;
        // Two masks as wide as the stream, and one of the scores.
        let masks = if dropout == DropoutMasks::Kept { 2.0 } else { 0.0 };
        if shape.is_gpt() {
            // In numbers: 2 + 2/t + 12/t, and two masks, which are numbers as well. The 2 are the
            // gathered inputs of column-parallel matrices: they stay, and Megatron-LM gathers them
            // again. The 2/t are two sums of the stream. The 12/t are qkv, attention, and GELU's
            // slope and result with a width of 4 each. Then the statistics of two norms, and a
            // number for each head and row of attention, which recomputes its scores.
            return Kept {
                input: element * h,
                whole: element * 2.0 * h,
                stream: element * ((2.0 + masks) * h + 4.0),
                divided: element * (12.0 * h + shape.heads as f64),
                scores: 0.0,
            };
        }
        // The stream before each half of the block, and each norm's result; a norm after a half
        // keeps what it is given. Halves that work side by side read the same stream. Norms of
        // queries and keys keep what they are given. Then q, k, v and attention's output, and of
        // the MLP the results of its first matrix and of its activation function. A fused SwiGLU
        // keeps its two inputs and its result, and no product between them. A ReLU would need only
        // its result; here it keeps both. GPT-2 in 16 bits: 10 + 24/t, and 34 in all.
        let dense = shape.dense();
        let q = shape.q_width() as f64;
        let kv = shape.kv_width() as f64;
        let inputs = if dense.parallel { 1.0 } else { 2.0 };
        let norms = (dense.norms[0] + dense.norms[1]) as f64;
        let normed = if dense.qk_norms[0] > 0 { q + kv } else { 0.0 };
        // Experts compute once for each that a token has chosen, on copies of it; and of each copy
        // the result stays, which its weight multiplies. A shared one has a copy of its own.
        let experts = shape.experts_of(layer);
        let chosen = experts.map_or(1, |experts| experts.top_k) as f64;
        let shared = experts.map_or(0, |experts| experts.shared) as f64;
        let copies = if experts.is_some() {
            2.0 * chosen + shared.min(1.0)
        } else {
            0.0
        };
        let inner = (chosen + shared) * if dense.gated { 3.0 } else { 2.0 };
        // A published model's masks take a byte for each number.
        let of_scores = if dense.dropout { masks / 2.0 } else { 1.0 };
        let masks = if dense.dropout { masks } else { 0.0 };
        Kept {
            input: element * h,
            whole: element * copies * h,
            stream: (element * (inputs + norms) + masks) * h,
            divided: element * (2.0 * q + 2.0 * kv + normed + inner * shape.ffn_of(layer) as f64),
            // Two copies of the scores: with the mask 5as/h in 16 bits.
            scores: match scores {
                AttentionScores::None => 0.0,
                AttentionScores::Kept => {
                    (2.0 * element + of_scores) * (shape.heads * shape.block) as f64
                }
            },
        }
    }

    /// Bytes per token on each of `tensor` ranks, if `stream` of them share the residual stream:
    /// all of them with sequence parallelism, and 1 without. Scores are not among them.
    pub fn on_a_rank(&self, tensor: usize, stream: usize) -> f64 {
        self.whole + self.stream / stream as f64 + self.divided / tensor as f64
    }
}
