//! Any dense decoder, by the choices in which published families differ.
//!
//! The GPTs and Llamas of this library are two such sets of choices, and every count goes over
//! [`ModelShape::dense`]. Sources of the others are the configurations and layers of Hugging Face's
//! transformers 5.23.

use super::{BlockParameter, Family, ModelShape, experts};
use serde::{Deserialize, Serialize};

/// The choices of a dense decoder, beside the numbers of a [`ModelShape`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dense {
    /// Key and value heads. Each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Width of one head. All heads together may be wider or narrower than the model, as in Qwen3
    /// and Mistral NeMo.
    pub head: usize,
    /// Inner width of the MLP.
    pub ffn: usize,
    /// Whether a third matrix of the MLP gates the first one's result (SwiGLU, GeGLU).
    pub gated: bool,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether attention's last matrix has a bias.
    pub proj_bias: bool,
    /// Whether the MLP's matrices have biases.
    pub mlp_bias: bool,
    /// Norms of a block that attention and MLP read: two, or one that both read (Falcon 7B). Then
    /// those that their results pass through (OLMo 2; Gemma 2 has two of each).
    pub norms: [usize; 2],
    /// Vectors of each norm: 1, a gain (RMSNorm), or 2, a gain and a bias (LayerNorm).
    pub norm_vectors: usize,
    /// Numbers in the gains of the norms of queries and of keys: a head's width (Qwen3), or that of
    /// all heads (OLMo 2), of which tensor ranks have their part; 0 without.
    pub qk_norms: [usize; 2],
    /// Whether attention and MLP read the same residual stream, side by side (GPT-NeoX, Falcon).
    pub parallel: bool,
    /// Layers that see only the last so many positions: how many layers, and how many positions.
    pub windows: [usize; 2],
    /// Rows of the table of learned positions; 0 with rotary positions and with ALiBi.
    pub positions: usize,
    /// Numbers in vectors beside the tables: a norm of embedded tokens (BLOOM), the head's bias.
    pub ends: [usize; 2],
    /// Whether the head is the token table.
    pub tied: bool,
    /// Whether it has no head, and so no logits: a model that embeds or classifies texts.
    pub headless: bool,
    /// Whether it is trained with dropout, where a training has it at all.
    pub dropout: bool,
}

impl Dense {
    /// The choices of Llama, Mistral and many others: two RMSNorms, a gated MLP, no biases, rotary
    /// positions, a head of its own.
    pub fn llama(kv_heads: usize, head: usize, ffn: usize) -> Dense {
        let all = Dense { kv_heads, head, ffn, ..Dense::default() };
        Dense { gated: true, norms: [2, 0], norm_vectors: 1, ..all }
    }

    /// The choices of GPT-2, with `positions` rows of learned positions: two LayerNorms, a plain
    /// MLP, biases everywhere, the token table as the head.
    pub fn gpt2(kv_heads: usize, head: usize, ffn: usize, positions: usize) -> Dense {
        Dense {
            gated: false,
            qkv_bias: true,
            proj_bias: true,
            mlp_bias: true,
            norm_vectors: 2,
            positions,
            tied: true,
            dropout: true,
            ..Dense::llama(kv_heads, head, ffn)
        }
    }
}

impl ModelShape {
    /// The choices of the shape's family.
    pub fn dense(&self) -> Dense {
        let head = self.embd / self.heads.max(1); // a shape without heads is refused elsewhere
        let gpt2 = Dense::gpt2(self.heads, head, 4 * self.embd, self.block);
        let without_biases = Dense {
            qkv_bias: false,
            proj_bias: false,
            mlp_bias: false,
            norm_vectors: 1,
            ..gpt2
        };
        match self.family {
            Family::Gpt => without_biases,
            Family::Gpt2 => gpt2,
            Family::Llama(llama) => Dense {
                tied: llama.tied,
                ..Dense::llama(llama.kv_heads, head, llama.ffn)
            },
            Family::Dense(dense) => dense,
        }
    }
}

/// The parameters of block `layer`, by a Llama's names in Hugging Face's files. Families that keep
/// several of these matrices in one tensor have as many parameters.
pub(super) fn block(shape: &ModelShape, layer: usize) -> Vec<BlockParameter> {
    let matrix = BlockParameter::matrix::<&'static str>;
    let copied = BlockParameter::copied;
    let bias = BlockParameter::bias;
    let dense = shape.dense();
    let d = shape.embd;
    let q = shape.q_width();
    let kv = shape.kv_width();
    let ffn = shape.ffn_of(layer);
    let experts = shape.experts_of(layer);
    let one_mlp = experts.is_none();
    let norms = dense.norms[0] + dense.norms[1];
    let vectors = |norm: usize| if norm < norms { dense.norm_vectors } else { 0 };
    let [q_norm, k_norm] = dense.qk_norms;
    let of_heads =
        |name, length| BlockParameter { divided: length > dense.head, ..copied(name, length) };
    let all = [
        (vectors(0) > 0, copied("input_layernorm.weight", d)),
        (vectors(0) > 1, copied("input_layernorm.bias", d)),
        (true, matrix("self_attn.q_proj.weight", q, d)),
        (dense.qkv_bias, bias("self_attn.q_proj.bias", q)),
        (true, matrix("self_attn.k_proj.weight", kv, d)),
        (dense.qkv_bias, bias("self_attn.k_proj.bias", kv)),
        (true, matrix("self_attn.v_proj.weight", kv, d)),
        (dense.qkv_bias, bias("self_attn.v_proj.bias", kv)),
        (q_norm > 0, of_heads("self_attn.q_norm.weight", q_norm)),
        (k_norm > 0, of_heads("self_attn.k_norm.weight", k_norm)),
        (true, matrix("self_attn.o_proj.weight", d, q)),
        (dense.proj_bias, copied("self_attn.o_proj.bias", d)),
        (vectors(1) > 0, copied("post_attention_layernorm.weight", d)),
        (vectors(1) > 1, copied("post_attention_layernorm.bias", d)),
        (vectors(2) > 0, copied("pre_feedforward_layernorm.weight", d)),
        (vectors(3) > 0, copied("post_feedforward_layernorm.weight", d)),
        (one_mlp && dense.gated, matrix("mlp.gate_proj.weight", ffn, d)),
        (dense.gated && dense.mlp_bias, bias("mlp.gate_proj.bias", ffn)),
        (one_mlp, matrix("mlp.up_proj.weight", ffn, d)),
        (dense.mlp_bias, bias("mlp.up_proj.bias", ffn)),
        (one_mlp, matrix("mlp.down_proj.weight", d, ffn)),
        (dense.mlp_bias, copied("mlp.down_proj.bias", d)),
    ];
    let has = all.into_iter().filter(|(has, _)| *has);
    let mut block: Vec<BlockParameter> = has.map(|(_, parameter)| parameter).collect();
    if let Some(experts) = experts {
        // Mixtral's names: gate, up and down.
        let matrices = |widths| {
            let inner = widths * ffn;
            [("w1", inner, d), ("w3", inner, d), ("w2", d, inner)]
        };
        block.extend(experts::block(&experts, ["block_sparse_moe.", "gate"], d, matrices));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::super::Portion;
    use super::super::tests::{llama_3_2_1b, llama_3_8b};
    use super::*;
    use crate::kept::{AttentionScores, DropoutMasks, Kept};

    /// The families that are known by name, described choice by choice, count the same.
    #[test]
    fn known_families_count_the_same_by_their_choices() {
        let gpt = ModelShape::gpt2(12, 768, 12, 50_257, 1024);
        let without_biases = ModelShape { family: Family::Gpt, ..gpt };
        for shape in [llama_3_8b(), llama_3_2_1b(), gpt, without_biases] {
            let dense = ModelShape { family: Family::Dense(shape.dense()), ..shape };
            let on_a_rank = |shape: &ModelShape| {
                let half = shape.layers / 2;
                [0..half, half..shape.layers, 0..shape.layers].map(|layers| {
                    let portion = Portion { tensor: 4, ..shape.portion(&layers) };
                    shape.parameters_on_a_rank(&portion)
                })
            };
            assert_eq!(dense.parameters(), shape.parameters(), "{shape:?}");
            assert_eq!(on_a_rank(&dense), on_a_rank(&shape), "{shape:?}");
            assert_eq!(dense.decayed().1, shape.decayed().1, "{shape:?}");
            assert_eq!(dense.matrices(), shape.matrices(), "{shape:?}");
            assert_eq!(dense.flops_per_token(), shape.flops_per_token());
            // This library's GPT keeps what its operations keep, and GPT-2 the scores' masks.
            if shape.family != Family::Gpt {
                let kept = |shape| Kept::of(shape, 2.0, AttentionScores::None, DropoutMasks::None);
                assert_eq!(kept(&dense), kept(&shape), "{shape:?}");
            }
        }
    }

    /// Layers with windows attend to less and cache less; norms after attention and the MLP keep
    /// what they are given; vectors at both ends are counted, also on ranks.
    #[test]
    fn windows_norms_and_ends_are_counted() {
        let plain = Dense::llama(2, 6, 10);
        let of = |family: Dense| ModelShape {
            vocabulary: 32,
            block: 16,
            layers: 4,
            heads: 4,
            embd: 8,
            family: Family::Dense(family),
            experts: None,
        };
        let whole = of(plain);
        let windowed = of(Dense { windows: [3, 5], ..plain });
        assert_eq!(whole.attention_flops(16), 2 * 2 * 24 * (4 * 16));
        assert_eq!(windowed.attention_flops(16), 2 * 2 * 24 * (16 + 3 * 5));
        assert_eq!(windowed.attention_flops(4), whole.attention_flops(4));
        let less = whole.matmul_flops_per_token() - windowed.matmul_flops_per_token();
        assert_eq!(less, 3 * 2 * 2 * 24 * 3 * 11);
        assert_eq!((whole.cached(16), whole.cached(1)), (2 * 12 * 64, 2 * 12 * 4));
        assert_eq!(windowed.cached(16), 2 * 12 * (16 + 3 * 5));

        let kept = |dense| {
            let kept = Kept::of(&of(dense), 2.0, AttentionScores::None, DropoutMasks::Kept);
            kept.stream / (2.0 * 8.0)
        };
        for (norms, parallel, vectors, parameters) in [
            ([2, 0], false, 4.0, 16),
            ([0, 2], false, 4.0, 16),
            ([2, 2], false, 6.0, 32),
            ([2, 0], true, 3.0, 16),
            ([1, 0], true, 2.0, 8),
        ] {
            let dense = Dense { norms, parallel, ..plain };
            assert_eq!(kept(dense), vectors, "{norms:?}");
            assert_eq!(of(dense).layer_parameters(0) + 16, whole.layer_parameters(0) + parameters);
        }
        // A byte for each number of two masks, which are half as large as numbers of 16 bits.
        assert_eq!(kept(Dense { dropout: true, ..plain }), 5.0);

        let ends = of(Dense { ends: [16, 32], qk_norms: [24, 12], norm_vectors: 0, ..plain });
        let without = 4 * (2 * 8) + 8;
        assert_eq!(ends.parameters(), whole.parameters() + 16 + 32 + 4 * 36 - without);
        let on_a_rank = |shape: ModelShape| {
            shape.parameters_on_a_rank(&Portion { tensor: 2, ..shape.portion(&(0..4)) })
        };
        let gains = f64::from(4 * (2 * 8) + 8);
        let all = on_a_rank(whole) - gains + 16.0 + 32.0 / 2.0 + 4.0 * (24.0 + 12.0) / 2.0;
        assert_eq!(on_a_rank(ends), all);
    }

    /// A small model with every choice that neither a GPT nor a Llama makes, counted by hand.
    #[test]
    fn every_other_choice_is_counted() {
        let dense = Dense {
            qk_norms: [6; 2],
            parallel: true,
            tied: false,
            dropout: false,
            ..Dense::gpt2(2, 6, 10, 18)
        };
        let shape = ModelShape {
            vocabulary: 32,
            block: 16,
            layers: 3,
            heads: 4,
            embd: 8,
            family: Family::Dense(dense),
            experts: None,
        };
        let attention = (24 * 8 + 24) + 2 * (12 * 8 + 12) + (8 * 24 + 8);
        let mlp = (10 * 8 + 10) + (8 * 10 + 8);
        let block = 2 * 16 + attention + 2 * 6 + mlp;
        assert_eq!(shape.layer_parameters(0), block);
        let all = 2 * 32 * 8 + 18 * 8 + 3 * block + 16;
        assert_eq!(shape.parameters(), all);
        let named = shape.named();
        let counts = named.iter().map(|(_, dims)| dims.iter().product::<usize>());
        assert_eq!(counts.sum::<usize>() as u64, all);
        // Scores and weighted sum of 4 heads with a width of 6 each, not of the model's 8.
        assert_eq!(shape.attention_flops(16), 3 * 2 * 2 * 24 * 16);
        assert_eq!(shape.cached(1), 2 * 3 * 12);

        // Two bytes each: the block's input and its norms' results; q, k and v, q and k before
        // their norms, attention's output; and the MLP's two.
        let kept = Kept::of(&shape, 2.0, AttentionScores::None, DropoutMasks::Kept);
        assert_eq!(kept.stream, 3.0 * 2.0 * 8.0);
        let heads = (24 + 12 + 12) + (24 + 12) + 24;
        assert_eq!(kept.divided, 2.0 * f64::from(heads + 2 * 10));
        let with = |changed: Dense| {
            let family = Family::Dense(changed);
            Kept::of(
                &ModelShape { family, ..shape },
                2.0,
                AttentionScores::None,
                DropoutMasks::Kept,
            )
        };
        let in_turn = Dense { parallel: false, ..dense };
        assert_eq!(with(in_turn).stream, 4.0 * 2.0 * 8.0);
        let gated = Dense { gated: true, ..dense };
        assert_eq!(with(gated).divided - kept.divided, 2.0 * 10.0);
    }
}
