//! The blocks of a Llama: RMSNorm, rotary positions, grouped-query attention and SwiGLU. Names are
//! those of Hugging Face's files, and of experts those of Mixtral's. The shape lists them.

use super::build::{Build, Role, selecting_bias, whole};
use super::experts::Mixture;
use super::layers::{Block, Heads, Layer, Pass};
use crate::plan::{LlamaExtra, ModelShape};
use crate::tensor::{self, Activation, Init, Params, Rotations};
use candle_core::Result;
use std::ops::Range;
use std::sync::Arc;

/// The standard deviation of initial matrices, as in transformers.
pub(super) const STD: f32 = 0.02;

/// Initial numbers are uniform: a model has up to 10^9 of them, and a normal number takes ten times
/// as long to draw.
pub(super) fn matrix(std: f32) -> Init {
    Init::Uniform(std * 3f32.sqrt())
}

/// Matrices start with standard deviation 0.02, and 0.02 / √(2 · layers) where they write into the
/// residual stream. Gains start at 1.
pub(super) fn blocks(
    shape: &ModelShape,
    extra: &LlamaExtra,
    params: &Arc<Params>,
    layers: Range<usize>,
    build: &dyn Build,
) -> Result<Vec<Box<dyn Layer>>> {
    let residual_std = STD / (2.0 * shape.layers as f32).sqrt();
    let epsilon = extra.norm_eps as f32;
    let rotations = Rotations::new(extra.rope.frequencies(shape.head()));
    let block = |layer: usize| -> Result<Box<dyn Layer>> {
        let whole = |part: &str, init| whole(shape, layer, part, init);
        let norm = |part: &str| build.rms_norm(params, whole(part, Init::Constant(1.0)), epsilon);
        let linears = |parts: &[&str], role| {
            let wholes = parts.iter().map(|part| whole(part, matrix(STD)));
            build.linears(params, wholes.collect(), role)
        };
        let out = |part: &str, role| build.linear(params, whole(part, matrix(residual_std)), role);
        let norm1 = norm("input_layernorm.weight")?;
        let attention = GroupedAttention {
            qkv: linears(
                &["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"],
                Role::AttentionIn,
            )?,
            out: out("self_attn.o_proj.weight", Role::AttentionOut)?,
            heads: Heads {
                queries: build.heads(shape.heads),
                kv: build.heads(extra.kv_heads).len(),
            },
            layer,
            rotations: rotations.clone(),
        };
        let norm2 = norm("post_attention_layernorm.weight")?;
        let mlp = |[gate, up, down]: [&str; 3]| -> Result<Box<dyn Layer>> {
            Ok(Box::new(GatedMlp {
                gate_up: linears(&[gate, up], Role::MlpIn)?,
                down: out(down, Role::MlpOut)?,
            }))
        };
        let mlp = match shape.experts_of(layer) {
            None => mlp(["mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"])?,
            Some(rules) => {
                let place = "block_sparse_moe";
                let of = |part: String| {
                    let [gate, up, down] =
                        ["w1", "w3", "w2"].map(|matrix| format!("{place}.{part}.{matrix}.weight"));
                    mlp([&gate, &up, &down])
                };
                let router = format!("{place}.gate");
                let weight = whole(&format!("{router}.weight"), matrix(STD));
                build.mixture(Mixture {
                    router: build.gain(params, weight)?,
                    bias: selecting_bias(&rules, &router, params, &whole, build)?,
                    experts: build
                        .experts(rules.count)
                        .map(|expert| of(format!("experts.{expert}")))
                        .collect::<Result<_>>()?,
                    shared: (rules.shared > 0).then(|| of("shared".to_string())).transpose()?,
                    dispatcher: None,
                    rules,
                    name: format!("{}.{place}", shape.block_name(layer)),
                })
            }
        };
        Ok(Box::new(Block { norm1, attention: Box::new(attention), norm2, mlp }))
    };
    layers.map(block).collect()
}

/// Self-attention with rotary positions, in which groups of query heads share a key and value head.
struct GroupedAttention {
    qkv: Box<dyn Layer>,
    out: Box<dyn Layer>,
    heads: Heads,
    /// The layer's number, by which attention that a pass brings along knows it.
    layer: usize,
    rotations: Arc<Rotations>,
}

impl Layer for GroupedAttention {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let qkv = self.qkv.forward(x, pass)?;
        let Heads { queries, kv } = &self.heads;
        let heads = queries.len();
        let turned = tensor::rope(qkv, &self.rotations, heads + kv, &pass.slices)?;
        let y = match &pass.attention {
            Some(attention) => {
                attention.attend(turned, &self.heads, pass, &self.layer.to_string())?
            }
            None => tensor::grouped_attention(&turned, heads, *kv, pass.precision)?,
        };
        self.out.forward(&y, pass)
    }
}

/// A block's MLP: gate and up side by side, SwiGLU, and down.
struct GatedMlp {
    gate_up: Box<dyn Layer>,
    down: Box<dyn Layer>,
}

impl Layer for GatedMlp {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        self.down.forward(&tensor::swiglu(&self.gate_up.forward(x, pass)?)?, pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_begin_with_their_standard_deviation() {
        let params = Params::new();
        params.declare("matrix", &[100, 100], matrix(STD)).unwrap();
        params.allocate(1337);
        let squares: f64 = params.values().iter().map(|&x| f64::from(x).powi(2)).sum();
        let deviation = (squares / params.numel() as f64).sqrt();
        // Of 10^4 numbers: the estimate's own deviation is 0.4%.
        assert!((deviation / f64::from(STD) - 1.0).abs() < 0.02, "{deviation}");
    }
}
