//! nanoGPT's GPT, with learned positions, no biases, and the token table as the head. A rank holds all of it, or a
//! stage or several chunks of a pipeline.

use super::build::{Build, Plain, Role};
use super::layers::{Attention, Block, Entry, Exit, Layer, Mlp, Pass, Recomputed};
use crate::data::Batch;
use crate::plan::GptShape;
use crate::tensor::{Copies, Init, Param, Params, Whole};
use candle_core::{Result, Tensor, bail};
use std::ops::Range;
use std::sync::Arc;

/// A decoder-only transformer over tokens, or a range of its layers. The embedding belongs to layer 0; the final norm
/// and the head belong to the last layer.
pub struct Gpt {
    pub shape: GptShape,
    pub params: Arc<Params>,
    entry: Option<Box<dyn Entry>>,
    blocks: Vec<Box<dyn Layer>>,
    /// The final norm, and the head with the loss.
    exit: Option<End>,
}

type End = (Box<dyn Layer>, Box<dyn Exit>);

/// The input of a range of layers.
pub enum Input<'a> {
    /// Layer 0's input: sequences of `length` tokens, one after the other.
    Tokens { ids: &'a [u32], length: usize },
    /// Every other layer's input: the previous layer's activations [sequences, length, width]. The previous stage waits
    /// for their [`gradient`](crate::tensor::gradient), which the backward pass computes if they are a variable (a
    /// `Var`).
    Hidden(&'a Tensor),
}

/// A range of a model's layers, as a pipeline's stage runs it.
pub trait Chunk {
    /// The parameters of these layers, and of the rank's other chunks.
    fn params(&self) -> &Arc<Params>;
    /// Runs the forward pass: activations, or at the model's end the mean cross-entropy of `targets`.
    fn forward(&self, input: Input, targets: &[u32], pass: &Pass) -> Result<Tensor>;
}

impl Chunk for Gpt {
    fn params(&self) -> &Arc<Params> {
        &self.params
    }

    fn forward(&self, input: Input, targets: &[u32], pass: &Pass) -> Result<Tensor> {
        Gpt::forward(self, input, targets, pass)
    }
}

impl Gpt {
    /// Declares the whole model. [`Params::allocate`] gives it weights.
    pub fn new(shape: &GptShape) -> Result<Gpt> {
        Gpt::build(shape, &Plain)
    }

    /// Declares the whole model, with layers that `build` makes.
    pub fn build(shape: &GptShape, build: &dyn Build) -> Result<Gpt> {
        Gpt::stage(shape, 0..shape.layers, build)
    }

    /// Declares only the given layers. A parameter has the same name, and so the same initial values, as in the whole
    /// model.
    pub fn stage(shape: &GptShape, layers: Range<usize>, build: &dyn Build) -> Result<Gpt> {
        let mut table = Table::of(shape, std::slice::from_ref(&layers));
        Gpt::chunk(shape, &Params::new(), &mut table, layers, build)
    }

    /// Declares several ranges of layers with one set of parameters: what a rank of an interleaved pipeline holds.
    pub fn chunks(shape: &GptShape, chunks: &[Range<usize>], build: &dyn Build) -> Result<Vec<Gpt>> {
        let (params, mut table) = (Params::new(), Table::of(shape, chunks));
        chunks.iter().map(|layers| Gpt::chunk(shape, &params, &mut table, layers.clone(), build)).collect()
    }

    /// Declares the parameters of `layers` in `params`.
    ///
    /// Matrices start normal with standard deviation 0.02. The deviation is 0.02 / √(2 · layers) for matrices that
    /// write into the residual stream (Radford et al. 2019). Gains start at 1.
    fn chunk(
        shape: &GptShape,
        params: &Arc<Params>,
        table: &mut Table,
        layers: Range<usize>,
        build: &dyn Build,
    ) -> Result<Gpt> {
        if layers.is_empty() || layers.end > shape.layers {
            bail!("a model of {} layers has no stage of layers {layers:?}", shape.layers);
        }
        let d = shape.embd;
        let std = 0.02;
        let residual_std = std / (2.0 * shape.layers as f32).sqrt();
        let matrix = |name: &str, rows, columns, std| Whole::new(name, &[rows, columns], Init::Normal(std));
        let norm = |name: &str| build.norm(params, Whole::new(name, &[d], Init::Constant(1.0)));
        let mut tokens = || table.param(params, matrix("wte.weight", shape.vocabulary, d, std), build);
        let block = |i: usize| -> Result<Box<dyn Layer>> {
            let name = format!("blocks.{i}");
            let linear = |part: &str, outs, ins, std, role| {
                build.linear(params, matrix(&format!("{name}.{part}.weight"), outs, ins, std), role)
            };
            let (norm1, norm2) = (norm(&format!("{name}.ln1.weight"))?, norm(&format!("{name}.ln2.weight"))?);
            let attention = Attention {
                qkv: linear("qkv", 3 * d, d, std, Role::AttentionIn)?,
                proj: linear("proj", d, d, residual_std, Role::AttentionOut)?,
                heads: build.heads(shape.heads),
                name: name.clone(),
            };
            let mlp = Mlp {
                fc: linear("fc", 4 * d, d, std, Role::MlpIn)?,
                out: linear("out", d, 4 * d, residual_std, Role::MlpOut)?,
                name: name.clone(),
            };
            Ok(Box::new(Block { norm1, attention: Box::new(attention), norm2, mlp: Box::new(mlp) }))
        };
        let entry = match layers.start {
            0 => Some(build.entry(params, tokens()?, matrix("wpe.weight", shape.block, d, std))?),
            _ => None,
        };
        let last = layers.end == shape.layers;
        let blocks = layers.map(block).collect::<Result<_>>()?;
        let exit = if last { Some((norm("lnf.weight")?, build.exit(tokens()?))) } else { None };
        Ok(Gpt { shape: *shape, params: params.clone(), entry, blocks, exit })
    }

    /// Keeps only the input of each group of `every` blocks for the backward pass, which computes the rest again:
    /// activation checkpointing. 0 keeps everything.
    pub fn recompute(&mut self, every: usize) {
        if every > 0 {
            let mut blocks = std::mem::take(&mut self.blocks).into_iter().peekable();
            while blocks.peek().is_some() {
                self.blocks.push(Box::new(Recomputed { blocks: blocks.by_ref().take(every).collect() }));
            }
        }
    }

    /// Runs the forward pass. Returns the last layer's activations [sequences, length, width]. At the model's end, it
    /// returns the mean cross-entropy of `targets` in nats per token, a scalar.
    pub fn forward(&self, input: Input, targets: &[u32], pass: &Pass) -> Result<Tensor> {
        let x = self.hidden(input, pass)?;
        match &self.exit {
            Some((norm, exit)) => exit.loss(&norm.forward(&x, pass)?, targets, pass),
            None => Ok(x),
        }
    }

    /// The mean cross-entropy over a batch, in nats per token: a scalar. Needs the whole model.
    pub fn loss(&self, batch: &Batch, pass: &Pass) -> Result<Tensor> {
        self.exit()?;
        self.forward(Input::Tokens { ids: &batch.inputs, length: batch.length }, &batch.targets, pass)
    }

    /// The next token's logits at every position: [sequences, length, vocabulary]. Needs the whole model.
    pub fn logits(&self, ids: &[u32], length: usize, pass: &Pass) -> Result<Tensor> {
        let (norm, exit) = self.exit()?;
        let x = self.hidden(Input::Tokens { ids, length }, pass)?;
        exit.logits(&norm.forward(&x, pass)?, pass)
    }

    fn hidden(&self, input: Input, pass: &Pass) -> Result<Tensor> {
        let mut x = match (input, &self.entry) {
            (Input::Tokens { ids, length }, Some(entry)) => entry.forward(ids, length, pass)?,
            (Input::Hidden(x), None) => x.clone(),
            (Input::Tokens { .. }, None) => {
                bail!("these layers take activations: tokens are for layer 0, which is not here")
            }
            (Input::Hidden(_), Some(_)) => bail!("these layers take tokens: layer 0 is here, and nothing is before it"),
        };
        for block in &self.blocks {
            x = block.forward(&x, pass)?;
        }
        Ok(x)
    }

    fn exit(&self) -> Result<&End> {
        match &self.exit {
            Some(exit) => Ok(exit),
            None => bail!("the last layer is not here, so there are no logits and no loss: call Gpt::forward"),
        }
    }
}

/// A rank's token table. Entry and exit share one table if this rank has both. Otherwise each rank has its own copy.
struct Table {
    copies: Copies,
    declared: Option<Param>,
}

impl Table {
    fn of(shape: &GptShape, chunks: &[Range<usize>]) -> Table {
        let first = chunks.iter().any(|layers| layers.start == 0);
        let last = chunks.iter().any(|layers| layers.end == shape.layers);
        Table { copies: if first && last { Copies::One } else { Copies::Tied { first } }, declared: None }
    }

    /// A handle for one more layer that uses the table.
    fn param(&mut self, params: &Arc<Params>, whole: Whole, build: &dyn Build) -> Result<Param> {
        if let Some(declared) = &self.declared {
            return declared.tie();
        }
        let param = build.table(params, whole, self.copies)?;
        self.declared = Some(param.handle());
        Ok(param)
    }
}
