//! Life 1's model: blocks whose parameters come from outside, one block at a time, between two ends
//! that every rank holds.

use crate::model;
use anyhow::Result;
use candle_core::Var;
use shardlab::data::Batch;
use shardlab::model::{Block, Entry, Layer, Pass, Plain};
use shardlab::plan::ModelShape;
use shardlab::tensor::{Copies, Numbers, Params, Storage, Tensor, backward_from, gradient};
use std::sync::Arc;

/// The layers of a GPT. Blocks have no parameters of their own between two passes.
pub struct Layers {
    /// Token table, positions and last norm: every rank has them, values and gradients.
    pub ends: Arc<Params>,
    entry: Box<dyn Entry>,
    head: model::Head,
    pub blocks: Vec<(Arc<Params>, Block)>,
}

impl Layers {
    pub fn new(shape: &ModelShape, seed: u64) -> Result<Layers> {
        let ends = Params::new();
        let table = model::table(shape, &ends, &Plain, Copies::One)?;
        let tied = table.tie()?;
        let entry = model::entry(shape, &ends, &Plain, table)?;
        let head = model::head(shape, &ends, &Plain, tied)?;
        ends.allocate(seed);
        let block = |layer| {
            let params = Params::new();
            let block = model::block(shape, &params, layer, &Plain, &model::whole_mlp)?;
            Ok((params, block))
        };
        Ok(Layers {
            ends,
            entry,
            head,
            blocks: (0..shape.layers).map(block).collect::<Result<_>>()?,
        })
    }
}

/// Both passes of one micro-batch, block by block. What a block gives to the next one is kept, with
/// the graph behind it.
pub struct Passes<'a> {
    layers: &'a Layers,
    batch: &'a Batch,
    /// The factor of the loss in the backward pass.
    scale: f64,
    /// The embedding, and each block's input and output.
    embedded: Tensor,
    kept: Vec<(Var, Tensor)>,
    /// The gradient that arrives from behind.
    dy: Option<Tensor>,
    pub loss: f64,
}

impl Passes<'_> {
    pub fn new<'a>(layers: &'a Layers, batch: &'a Batch, scale: f64) -> Result<Passes<'a>> {
        let pass = Pass::training(None);
        Ok(Passes {
            layers,
            batch,
            scale,
            embedded: layers.entry.forward(&batch.inputs, batch.length, &pass)?,
            kept: Vec::new(),
            dy: None,
            loss: f64::NAN,
        })
    }

    /// The parameters of a block.
    pub fn numel(&self, block: usize) -> usize {
        self.layers.blocks[block].0.numel()
    }

    /// Runs a block forward, and after the last one the head and its backward pass.
    pub fn forward(&mut self, block: usize, parameters: &[f32]) -> Result<()> {
        let (params, layer) = &self.layers.blocks[block];
        let x = match self.kept.last() {
            None => &self.embedded,
            Some((_, y)) => y,
        };
        // A variable, so that the graph begins here and its gradient is known.
        let x = Var::from_tensor(&x.detach())?;
        hold(params, parameters);
        let y = layer.forward(x.as_tensor(), &Pass::training(None))?;
        params.set_values(Storage::Unallocated);
        self.kept.push((x, y));
        if self.kept.len() == self.layers.blocks.len() {
            self.run_head()?;
        }
        Ok(())
    }

    fn run_head(&mut self) -> Result<()> {
        let (norm, exit) = &self.layers.head;
        let (_, y) = &self.kept[self.kept.len() - 1];
        let x = Var::from_tensor(&y.detach())?;
        let pass = Pass::training(None);
        let loss = exit.loss(&norm.forward(x.as_tensor(), &pass)?, &self.batch.targets, &pass)?;
        self.loss = f64::from(loss.to_scalar::<f32>()?);
        self.dy = Some(gradient(&(loss * self.scale)?.backward()?, &x)?);
        Ok(())
    }

    /// Runs a block backward, and before the first one the embedding. Returns the gradients of the
    /// block's parameters.
    pub fn backward(&mut self, block: usize, parameters: &[f32]) -> Result<Vec<f32>> {
        let (params, _) = &self.layers.blocks[block];
        let (Some((x, y)), Some(dy)) = (self.kept.pop(), self.dy.take()) else {
            anyhow::bail!("block {block} runs backward before all blocks have run forward")
        };
        hold(params, parameters);
        params.set_gradients(Storage::Local(Numbers::F32(vec![0.0; params.numel()])));
        let dx = gradient(&backward_from(&y, &dy)?, &x)?;
        params.set_values(Storage::Unallocated);
        if block == 0 {
            backward_from(&self.embedded, &dx)?;
        }
        self.dy = Some(dx);
        match params.set_gradients(Storage::Unallocated) {
            Storage::Local(Numbers::F32(gradients)) => Ok(gradients),
            _ => anyhow::bail!("block {block} has no gradients"),
        }
    }
}

/// Gives a block its parameters, for one pass.
fn hold(params: &Params, parameters: &[f32]) {
    assert_eq!(parameters.len(), params.numel(), "a block gets other parameters than it has");
    params.set_values(Storage::Local(Numbers::F32(parameters.to_vec())));
}
