//! A GPT: nanoGPT's, with learned positions, no biases, and the token table as the head.

use super::layers::{Attention, Block, Embedding, Layer, LayerNorm, Linear, Mlp, Pass, TiledLinear};
use crate::data::Batch;
use crate::plan::GptShape;
use crate::tensor::{self, Init, Param, Params};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// A decoder-only transformer over tokens.
pub struct Gpt {
    pub shape: GptShape,
    pub params: Arc<Params>,
    pub embedding: Embedding,
    pub blocks: Vec<Box<dyn Layer>>,
    pub norm: Box<dyn Layer>,
    pub head: Box<dyn Layer>,
}

impl Gpt {
    /// Describes the model; its weights exist after [`Params::allocate`].
    ///
    /// Matrices start normal with standard deviation 0.02, those that write into the residual stream 0.02 / √(2 · layers)
    /// (Radford et al. 2019); gains start at 1.
    pub fn new(shape: &GptShape) -> Result<Gpt> {
        Gpt::tiled(shape, 1)
    }

    /// The same model, with each matrix of its perceptrons in `tiles` tiles ([`TiledLinear`]), which must divide `embd`.
    pub fn tiled(shape: &GptShape, tiles: usize) -> Result<Gpt> {
        let params = Params::new();
        let d = shape.embd;
        let std = 0.02;
        let residual_std = std / (2.0 * shape.layers as f32).sqrt();
        let embedding = Embedding {
            tokens: params.declare("wte.weight", &[shape.vocabulary, d], Init::Normal(std))?,
            positions: params.declare("wpe.weight", &[shape.block, d], Init::Normal(std))?,
        };
        let norm = |name: String| -> Result<Box<dyn Layer>> {
            Ok(Box::new(LayerNorm { gain: params.declare(name, &[d], Init::Constant(1.0))? }))
        };
        let linear = |name: String, outs: usize, ins: usize, std: f32| -> Result<Box<dyn Layer>> {
            let weight: Param = params.declare(name, &[outs, ins], Init::Normal(std))?;
            Ok(Box::new(Linear { weight, bias: None }))
        };
        let wide = |name: String, outs: usize, ins: usize, std: f32| -> Result<Box<dyn Layer>> {
            if tiles == 1 {
                return linear(name, outs, ins, std);
            }
            let tile = |tile| {
                let weight = params.declare_tile(&name, [outs, ins], (tile, tiles), Init::Normal(std))?;
                Ok(Linear { weight, bias: None })
            };
            Ok(Box::new(TiledLinear { tiles: (0..tiles).map(tile).collect::<Result<_>>()? }))
        };
        let block = |i: usize| -> Result<Box<dyn Layer>> {
            let name = format!("blocks.{i}");
            let norms = (norm(format!("{name}.ln1.weight"))?, norm(format!("{name}.ln2.weight"))?);
            let attention = Attention {
                qkv: linear(format!("{name}.qkv.weight"), 3 * d, d, std)?,
                proj: linear(format!("{name}.proj.weight"), d, d, residual_std)?,
                heads: shape.heads,
                first_head: 0,
                name: name.clone(),
            };
            let mlp = Mlp {
                fc: wide(format!("{name}.fc.weight"), 4 * d, d, std)?,
                out: wide(format!("{name}.out.weight"), d, 4 * d, residual_std)?,
                name,
            };
            Ok(Box::new(Block { norm1: norms.0, attention: Box::new(attention), norm2: norms.1, mlp: Box::new(mlp) }))
        };
        let blocks = (0..shape.layers).map(block).collect::<Result<_>>()?;
        let last_norm = norm("lnf.weight".to_string())?;
        let head = Box::new(Linear { weight: embedding.tokens.tie()?, bias: None });
        Ok(Gpt { shape: *shape, params: params.clone(), embedding, blocks, norm: last_norm, head })
    }

    /// What the model expects next at every position, as logits: [sequences, length, vocabulary].
    pub fn logits(&self, ids: &[u32], length: usize, pass: &Pass) -> Result<Tensor> {
        let mut x = self.embedding.forward(ids, length, pass)?;
        for block in &self.blocks {
            x = block.forward(&x, pass)?;
        }
        self.head.forward(&self.norm.forward(&x, pass)?, pass)
    }

    /// The mean cross-entropy over a batch, in nats a token: a scalar.
    pub fn loss(&self, batch: &Batch, pass: &Pass) -> Result<Tensor> {
        tensor::cross_entropy(&self.logits(&batch.inputs, batch.length, pass)?, &batch.targets)
    }
}
