//! The shape of a Llama, and what follows from it: parameters by name, FLOPs, the size of the KV cache.
//!
//! Three differences to the GPT count here. Groups of query heads share a key and value head (grouped-query attention, Ainslie et
//! al., arXiv 2305.13245). The MLP has three matrices (SwiGLU, Shazeer, arXiv 2002.05202). Positions have no parameters (RoPE,
//! Su et al., arXiv 2104.09864).
//!
//! Reading order: `config.rs` (Hugging Face's config.json), `presets.rs` (models by name).

mod config;
mod presets;

pub use presets::PRESETS;

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The numbers that define a Llama.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LlamaShape {
    /// Distinct tokens.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub embd: usize,
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads. Each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Inner width of the MLP.
    pub ffn: usize,
    /// The longest sequence, in tokens.
    pub block: usize,
    pub rope: Rope,
    /// Added to the mean square in each norm.
    pub norm_eps: f64,
    /// Whether the head is the token table.
    pub tied: bool,
}

/// Rotary position embedding: pair i of a head's numbers turns by `position · theta^(-2i / head)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    pub theta: f64,
    /// `None` leaves all frequencies as they are.
    pub scaling: Option<RopeScaling>,
}

/// The scaling of Llama 3.1 and 3.2 for long sequences: wavelengths above `original_block / low_freq_factor` are stretched by
/// `factor`, those below `original_block / high_freq_factor` stay, and those between are blended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    pub factor: f64,
    pub low_freq_factor: f64,
    pub high_freq_factor: f64,
    /// The longest sequence before the model was trained for longer ones.
    pub original_block: usize,
}

/// A parameter's name in Hugging Face's files, and its shape.
pub type Named = (String, Vec<usize>);

impl LlamaShape {
    /// Width of one head.
    pub fn head(&self) -> usize {
        self.embd / self.heads
    }

    /// Width of all keys of a position, and of all its values.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head()
    }

    /// The seven matrices of every block, by their names inside of a block.
    pub fn block_matrices(&self) -> [(&'static str, [usize; 2]); 7] {
        let d = self.embd;
        let kv = self.kv_width();
        let ffn = self.ffn;
        [
            ("self_attn.q_proj", [d, d]),
            ("self_attn.k_proj", [kv, d]),
            ("self_attn.v_proj", [kv, d]),
            ("self_attn.o_proj", [d, d]),
            ("mlp.gate_proj", [ffn, d]),
            ("mlp.up_proj", [ffn, d]),
            ("mlp.down_proj", [d, ffn]),
        ]
    }

    /// All parameters, in the order of the model.
    pub fn named(&self) -> Vec<Named> {
        let d = self.embd;
        let table = vec![self.vocabulary, self.embd];
        let mut all = vec![("model.embed_tokens.weight".to_string(), table.clone())];
        for layer in 0..self.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            all.push((name("input_layernorm"), vec![d]));
            all.extend(
                self.block_matrices()
                    .map(|(part, shape)| (name(part), shape.to_vec())),
            );
            all.push((name("post_attention_layernorm"), vec![d]));
        }
        all.push(("model.norm.weight".into(), vec![d]));
        if !self.tied {
            all.push(("lm_head.weight".into(), table));
        }
        all
    }

    /// Parameters of the token table; an untied head has as many once more.
    pub fn table(&self) -> u64 {
        self.vocabulary as u64 * self.embd as u64
    }

    /// Parameters of one block: its matrices and two gains.
    pub fn per_layer(&self) -> u64 {
        let matrices: u64 = self
            .block_matrices()
            .iter()
            .map(|(_, [rows, columns])| (rows * columns) as u64)
            .sum();
        matrices + 2 * self.embd as u64
    }

    /// All parameters. A tied head is counted once, with the token table.
    pub fn parameters(&self) -> u64 {
        let tables = if self.tied { 1 } else { 2 };
        self.layers as u64 * self.per_layer() + tables * self.table() + self.embd as u64
    }

    /// Parameters of a pipeline's stage with `layers`. The first stage has the table, the last one the norm and the head, which is
    /// a copy of a tied table.
    pub fn stage_parameters(&self, layers: &Range<usize>) -> u64 {
        let first = layers.start == 0;
        let last = layers.end == self.layers;
        let tables = u64::from(first) + u64::from(last && !(first && self.tied));
        layers.len() as u64 * self.per_layer()
            + tables * self.table()
            + if last { self.embd as u64 } else { 0 }
    }

    /// FLOPs of the forward pass for one token without attention's scores: 2 for every parameter (Kaplan et al., arXiv 2001.08361).
    pub fn forward_flops_per_token(&self) -> u64 {
        2 * self.parameters()
    }

    /// FLOPs of the forward and the backward pass for one token without attention's scores: 6 for every parameter.
    pub fn training_flops_per_token(&self) -> u64 {
        6 * self.parameters()
    }

    /// FLOPs of one token's scores and weighted sum over `seen` positions, forward: 4 · layers · embd · seen. Training takes three
    /// times as many. Grouped-query attention changes the cache's size, not these.
    pub fn attention_flops(&self, seen: usize) -> u64 {
        4 * self.layers as u64 * self.embd as u64 * seen as u64
    }

    /// Numbers that a KV cache holds per token: a key and a value for each key and value head of each layer.
    pub fn cached_per_token(&self) -> u64 {
        2 * self.layers as u64 * self.kv_width() as u64
    }
}

impl Rope {
    /// The frequencies of the `head / 2` pairs, in radians per position.
    pub fn frequencies(&self, head: usize) -> Vec<f64> {
        let plain = |i: usize| self.theta.powf(-((2 * i) as f64) / head as f64);
        (0..head / 2)
            .map(|i| {
                self.scaling
                    .map_or(plain(i), |scaling| scaling.of(plain(i)))
            })
            .collect()
    }
}

impl RopeScaling {
    /// The scaled frequency.
    fn of(&self, frequency: f64) -> f64 {
        // How often the pair turns within the original length.
        let turns = self.original_block as f64 * frequency / std::f64::consts::TAU;
        let low = self.low_freq_factor;
        let high = self.high_freq_factor;
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        kept * frequency + (1.0 - kept) * frequency / self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_have_all_parameters() {
        for (name, shape) in PRESETS {
            let all: u64 = shape
                .named()
                .iter()
                .map(|(_, dims)| dims.iter().map(|&n| n as u64).product::<u64>())
                .sum();
            assert_eq!(all, shape.parameters(), "{name}");
        }
        let names = LlamaShape::preset("stories260k").unwrap().named();
        assert_eq!(names.len(), 1 + 5 * 9 + 1);
        assert!(names.contains(&("model.layers.4.mlp.down_proj.weight".into(), vec![64, 172])));
    }

    #[test]
    fn flops_follow_from_parameters() {
        let shape = LlamaShape::preset("llama-3.2-1b").unwrap();
        assert_eq!(shape.forward_flops_per_token(), 2 * 1_235_814_400);
        assert_eq!(shape.training_flops_per_token(), 6 * 1_235_814_400);
        // Two products of 32 heads of 64 with 8,192 positions, 2 FLOPs each, in 16 layers.
        assert_eq!(shape.attention_flops(8192), 16 * 2 * 2 * 32 * 64 * 8192);
        assert_eq!(shape.cached_per_token(), 16 * 2 * 8 * 64);
    }

    /// Fast pairs keep their frequency, slow ones turn 32 times slower, and no pair between is faster than a faster pair.
    #[test]
    fn llama3_scaling_slows_only_slow_pairs() {
        let shape = LlamaShape::preset("llama-3.2-1b").unwrap();
        let scaled = shape.rope.frequencies(64);
        let plain = Rope {
            scaling: None,
            ..shape.rope
        }
        .frequencies(64);
        assert_eq!(plain[0], 1.0);
        assert!((plain[31] - 500_000f64.powf(-62.0 / 64.0)).abs() < 1e-18);
        for (pair, (scaled, plain)) in scaled.iter().zip(&plain).enumerate() {
            let wavelength = std::f64::consts::TAU / plain;
            let expected = match () {
                _ if wavelength < 8192.0 / 4.0 => Some(*plain),
                _ if wavelength > 8192.0 => Some(plain / 32.0),
                _ => None,
            };
            match expected {
                Some(expected) => assert!((scaled / expected - 1.0).abs() < 1e-12, "pair {pair}"),
                None => assert!(scaled < plain && *scaled > plain / 32.0, "pair {pair}"),
            }
        }
        assert!(scaled.is_sorted_by(|a, b| a > b));
    }
}
