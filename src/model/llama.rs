//! The Llama: a GPT with RMSNorm, rotary positions, grouped-query attention and SwiGLU. Parameters have the names of Hugging
//! Face's files.

use super::build::{Build, Role};
use super::decoder::{Architecture, Decoder};
use super::layers::{Block, Entry, Layer, Pass};
use crate::plan::LlamaShape;
use crate::tensor::{self, Init, KvCache, Param, Params, Rotations, Whole};
use candle_core::{Result, Tensor, bail};
use std::ops::Range;
use std::sync::Arc;

/// A Llama, or a range of its layers.
pub type Llama = Decoder<LlamaShape>;

/// The standard deviation of initial matrices, as in transformers.
const STD: f32 = 0.02;

/// Initial numbers are uniform: a model has up to 10^9 of them, and a normal number takes ten times as long to draw.
fn matrix(name: &str, rows: usize, columns: usize, std: f32) -> Whole {
    Whole::new(name, &[rows, columns], Init::Uniform(std * 3f32.sqrt()))
}

impl Decoder<LlamaShape> {
    /// An empty cache for these layers: for `sequences` sequences of up to `capacity` positions. `build` is the model's builder.
    pub fn cache(&self, sequences: usize, capacity: usize, build: &dyn Build) -> Arc<KvCache> {
        let kv_heads = build.heads(self.shape.kv_heads).len();
        Arc::new(KvCache::new(
            self.layers.clone(),
            sequences,
            kv_heads,
            self.shape.head(),
            capacity,
        ))
    }
}

/// Matrices start with standard deviation 0.02, and 0.02 / √(2 · layers) where they write into the residual stream. Gains start
/// at 1.
impl Architecture for LlamaShape {
    fn layers(&self) -> usize {
        self.layers
    }

    fn width(&self) -> usize {
        self.embd
    }

    fn table(&self) -> Whole {
        matrix("model.embed_tokens.weight", self.vocabulary, self.embd, STD)
    }

    fn head(&self) -> Option<Whole> {
        (!self.tied).then(|| matrix("lm_head.weight", self.vocabulary, self.embd, STD))
    }

    fn entry(
        &self,
        params: &Arc<Params>,
        tokens: Param,
        build: &dyn Build,
    ) -> Result<Box<dyn Entry>> {
        build.entry(params, tokens, None)
    }

    fn blocks(
        &self,
        params: &Arc<Params>,
        layers: Range<usize>,
        build: &dyn Build,
    ) -> Result<Vec<Box<dyn Layer>>> {
        let LlamaShape {
            embd: d,
            ffn,
            norm_eps,
            ..
        } = *self;
        let residual_std = STD / (2.0 * self.layers as f32).sqrt();
        let rotations = Rotations::new(self.rope.frequencies(self.head()));
        let block = |layer: usize| -> Result<Box<dyn Layer>> {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            let norm = |part: &str| build.rms_norm(params, gain(&name(part), d), norm_eps as f32);
            let linears = |parts: &[(&str, usize)], role| {
                let wholes = parts
                    .iter()
                    .map(|&(part, rows)| matrix(&name(part), rows, d, STD))
                    .collect();
                build.linears(params, wholes, role)
            };
            let out = |part: &str, ins, role| {
                build.linear(params, matrix(&name(part), d, ins, residual_std), role)
            };
            let kv = self.kv_width();
            let norm1 = norm("input_layernorm")?;
            let attention = GroupedAttention {
                qkv: linears(
                    &[
                        ("self_attn.q_proj", d),
                        ("self_attn.k_proj", kv),
                        ("self_attn.v_proj", kv),
                    ],
                    Role::AttentionIn,
                )?,
                out: out("self_attn.o_proj", d, Role::AttentionOut)?,
                heads: build.heads(self.heads).len(),
                kv_heads: build.heads(self.kv_heads).len(),
                layer,
                rotations: rotations.clone(),
            };
            let norm2 = norm("post_attention_layernorm")?;
            let mlp = GatedMlp {
                gate_up: linears(&[("mlp.gate_proj", ffn), ("mlp.up_proj", ffn)], Role::MlpIn)?,
                down: out("mlp.down_proj", ffn, Role::MlpOut)?,
            };
            Ok(Box::new(Block {
                norm1,
                attention: Box::new(attention),
                norm2,
                mlp: Box::new(mlp),
            }))
        };
        layers.map(block).collect()
    }

    fn norm(&self, params: &Arc<Params>, build: &dyn Build) -> Result<Box<dyn Layer>> {
        build.rms_norm(
            params,
            gain("model.norm.weight", self.embd),
            self.norm_eps as f32,
        )
    }
}

fn gain(name: &str, width: usize) -> Whole {
    Whole::new(name, &[width], Init::Constant(1.0))
}

/// Self-attention with rotary positions, in which groups of query heads share a key and value head.
struct GroupedAttention {
    qkv: Box<dyn Layer>,
    out: Box<dyn Layer>,
    /// This rank's query heads, and its key and value heads.
    heads: usize,
    kv_heads: usize,
    /// The layer's number, by which it finds its part of a cache.
    layer: usize,
    rotations: Arc<Rotations>,
}

impl Layer for GroupedAttention {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let qkv = self.qkv.forward(x, pass)?;
        let turned = |first| tensor::rope(qkv, &self.rotations, self.heads + self.kv_heads, first);
        let y = match &pass.cache {
            None => tensor::grouped_attention(&turned(0)?, self.heads, self.kv_heads)?,
            Some(_) if pass.train => bail!("a pass with a cache has no backward pass"),
            Some(cache) => {
                cache.attend(self.layer, &turned(cache.next(self.layer)?)?, self.heads)?
            }
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
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.down
            .forward(&tensor::swiglu(&self.gate_up.forward(x, pass)?)?, pass)
    }
}
