//! A decoder-only transformer, or a range of its layers: entry, blocks, exit. `gpt.rs` and
//! `llama.rs` declare the blocks.

use super::build::{Build, Plain};
use super::layers::{Entry, Exit, Layer, Pass, Recomputed};
use super::{gpt, llama};
use crate::data::Batch;
use crate::plan::{Family, ModelShape, Named};
use crate::tensor::{self, Activation, Copies, Init, Param, Params, Whole};
use candle_core::{Result, Tensor, bail};
use std::ops::Range;
use std::sync::Arc;

/// A decoder-only transformer over tokens, or a range of its layers. The embedding belongs to layer
/// 0; the final norm and the head belong to the last layer.
pub struct Decoder {
    pub shape: ModelShape,
    pub params: Arc<Params>,
    /// The numbers of the blocks that are here.
    pub layers: Range<usize>,
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
    /// Every other layer's input: the previous layer's activations [S, L, D]. The
    /// previous stage waits for their gradient, which the backward pass computes if they are the
    /// [`start`](Activation::start) of its tape.
    Hidden(&'a Activation),
}

/// The positions whose logits are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    All,
    /// Each sequence's last one: a generation needs no others, and the head is a large part of its
    /// work.
    Last,
}

/// A range of a model's layers, as a pipeline's stage runs it.
pub trait Chunk {
    /// The parameters of these layers, and of the rank's other chunks.
    fn params(&self) -> &Arc<Params>;
    /// Runs the forward pass: activations, or at the model's end the mean cross-entropy of
    /// `targets`.
    ///
    /// # Errors
    /// If the input is not what the first layer here takes, or a layer fails.
    fn forward(&self, input: Input, targets: &[u32], pass: &Pass) -> Result<Activation>;
}

impl Chunk for Decoder {
    fn params(&self) -> &Arc<Params> {
        &self.params
    }

    fn forward(&self, input: Input, targets: &[u32], pass: &Pass) -> Result<Activation> {
        Decoder::forward(self, input, targets, pass)
    }
}

impl Decoder {
    /// Declares the whole model. [`Params::allocate`] gives it weights.
    ///
    /// # Errors
    /// If the shape is that of a GPT-2, whose biases no layer here has.
    pub fn new(shape: &ModelShape) -> Result<Decoder> {
        Decoder::build(shape, &Plain)
    }

    /// Declares the whole model, with layers that `build` makes.
    ///
    /// # Errors
    /// As [`Decoder::new`], and if `build` cannot make a layer.
    pub fn build(shape: &ModelShape, build: &dyn Build) -> Result<Decoder> {
        Decoder::stage(shape, 0..shape.layers, build)
    }

    /// Declares only the given layers. A parameter has the same name, and so the same initial
    /// values, as in the whole model.
    ///
    /// # Errors
    /// As [`Decoder::build`], and if the model does not have these layers.
    pub fn stage(shape: &ModelShape, layers: Range<usize>, build: &dyn Build) -> Result<Decoder> {
        let mut table = Table::of(shape, std::slice::from_ref(&layers));
        Decoder::chunk(shape, &Params::new(), &mut table, layers, build)
    }

    /// Declares several ranges of layers with one set of parameters: what a rank of an interleaved
    /// pipeline holds.
    ///
    /// # Errors
    /// As [`Decoder::stage`].
    pub fn chunks(
        shape: &ModelShape,
        chunks: &[Range<usize>],
        build: &dyn Build,
    ) -> Result<Vec<Decoder>> {
        let params = Params::new();
        let mut table = Table::of(shape, chunks);
        chunks
            .iter()
            .map(|layers| Decoder::chunk(shape, &params, &mut table, layers.clone(), build))
            .collect()
    }

    /// Declares the parameters of `layers` in `params`.
    fn chunk(
        shape: &ModelShape,
        params: &Arc<Params>,
        table: &mut Table,
        layers: Range<usize>,
        build: &dyn Build,
    ) -> Result<Decoder> {
        if layers.is_empty() || layers.end > shape.layers {
            bail!("a model of {} layers has no stage of layers {layers:?}", shape.layers);
        }
        let parts = Parts::of(shape)?;
        let entry = if layers.start == 0 {
            let tokens = table.param(params, parts.table.clone(), build)?;
            Some(build.entry(params, tokens, parts.positions)?)
        } else {
            None
        };
        let blocks = match shape.family {
            Family::Llama(extra) => llama::blocks(shape, &extra, params, layers.clone(), build)?,
            _ => gpt::blocks(shape, params, layers.clone(), build)?,
        };
        let exit = if layers.end == shape.layers {
            let norm = match shape.family {
                Family::Llama(extra) => {
                    build.rms_norm(params, parts.norm, extra.norm_eps as f32)?
                }
                _ => build.norm(params, parts.norm)?,
            };
            let head = match parts.head {
                Some(head) => build.table(params, head, Copies::One)?,
                None => table.param(params, parts.table, build)?,
            };
            Some((norm, build.exit(head)))
        } else {
            None
        };
        Ok(Decoder {
            shape: *shape,
            params: params.clone(),
            layers,
            entry,
            blocks,
            exit,
        })
    }
}

impl Decoder {
    /// Keeps only the input of each group of `every` blocks for the backward pass, which computes
    /// the rest again: activation checkpointing. 0 keeps everything.
    pub fn recompute(&mut self, every: usize) {
        if every > 0 {
            let mut blocks = std::mem::take(&mut self.blocks).into_iter().peekable();
            while blocks.peek().is_some() {
                self.blocks
                    .push(Box::new(Recomputed { blocks: blocks.by_ref().take(every).collect() }));
            }
        }
    }

    /// Runs the forward pass. Returns the last layer's activations [S, L, D]. At
    /// the model's end, it returns the mean cross-entropy of `targets` in nats per token, a scalar.
    ///
    /// # Errors
    /// If the input is not what the first layer here takes, has no tokens, or a layer fails:
    /// weights are missing, or a rank has ended with which it communicates.
    pub fn forward(&self, input: Input, targets: &[u32], pass: &Pass) -> Result<Activation> {
        let x = self.hidden(self.enter(input, pass)?, pass)?;
        match &self.exit {
            Some((norm, exit)) => exit.loss(&norm.forward(&x, pass)?, targets, pass),
            None => Ok(x),
        }
    }

    /// Runs the forward pass. Returns the last layer's activations. At the model's end, it returns
    /// the logits at these positions.
    ///
    /// # Errors
    /// As [`Decoder::forward`].
    pub fn predict(&self, input: Input, pass: &Pass, positions: Positions) -> Result<Activation> {
        let x = self.hidden(self.enter(input, pass)?, pass)?;
        let Some((norm, exit)) = &self.exit else {
            return Ok(x);
        };
        let (sequences, length, width) = x.dims3()?;
        let x = if positions == Positions::Last && length > 1 {
            let last = (1..=sequences).map(|s| (s * length - 1) as u32).collect();
            tensor::picked(&x, last)?.reshaped((sequences, 1, width))?
        } else {
            x
        };
        exit.logits(&norm.forward(&x, pass)?, pass)
    }

    /// The mean cross-entropy over a batch, in nats per token: a scalar. Needs the whole model.
    ///
    /// # Errors
    /// As [`Decoder::forward`], and if the last layer is not here.
    pub fn loss(&self, batch: &Batch, pass: &Pass) -> Result<Tensor> {
        self.exit()?;
        let input = Input::Tokens { ids: &batch.inputs, length: batch.length };
        tensor::root(self.forward(input, &batch.targets, pass)?)
    }

    /// The next token's logits at every position: [S, L, V]. Needs the whole
    /// model.
    ///
    /// # Errors
    /// As [`Decoder::forward`], and if the last layer is not here.
    pub fn logits(&self, ids: &[u32], length: usize, pass: &Pass) -> Result<Tensor> {
        self.exit()?;
        tensor::root(self.predict(Input::Tokens { ids, length }, pass, Positions::All)?)
    }

    /// The activations before the first block here.
    fn enter(&self, input: Input, pass: &Pass) -> Result<Activation> {
        if let Input::Tokens { ids: [], .. } = input {
            bail!(
                "this rank's batch has no tokens\n\
                 help: a layer of no rows has no result: give every rank at least one sequence, or start fewer data ranks"
            );
        }
        match (input, &self.entry) {
            (Input::Tokens { ids, length }, Some(entry)) => entry.forward(ids, length, pass),
            (Input::Hidden(x), None) => Ok(x.clone()),
            (Input::Tokens { .. }, None) => {
                bail!("these layers take activations: tokens are for layer 0, which is not here")
            }
            (Input::Hidden(_), Some(_)) => {
                bail!("these layers take tokens: layer 0 is here, and nothing is before it")
            }
        }
    }

    /// The activations after the last block here.
    fn hidden(&self, x: Activation, pass: &Pass) -> Result<Activation> {
        self.blocks.iter().try_fold(x, |x, block| block.forward(&x, pass))
    }

    fn exit(&self) -> Result<&End> {
        match &self.exit {
            Some(exit) => Ok(exit),
            None => bail!(
                "the last layer is not here, so there are no logits and no loss: call forward or predict"
            ),
        }
    }
}

/// What is before and after the blocks.
struct Parts {
    table: Whole,
    positions: Option<Whole>,
    norm: Whole,
    /// The head's own matrix. `None`: the head is the token table.
    head: Option<Whole>,
}

impl Parts {
    fn of(shape: &ModelShape) -> Result<Parts> {
        let init = match shape.family {
            Family::Gpt => gpt::matrix(gpt::STD),
            Family::Llama(_) => llama::matrix(llama::STD),
            Family::Gpt2 | Family::Dense(_) => bail!(
                "only this GPT and a Llama have layers: others can be planned, and not trained"
            ),
        };
        let matrix = |(name, dims): Named| Whole::new(name, &dims, init);
        let (norm, width) = shape.last_norm_named().swap_remove(0); // its gain
        Ok(Parts {
            table: matrix(shape.table_named()),
            positions: shape.positions_named().map(matrix),
            norm: Whole::new(norm, &width, Init::Constant(1.0)),
            head: shape.head_named().map(matrix),
        })
    }
}

/// A rank's token table. Entry and exit share one table if this rank has both. Otherwise each rank
/// has its own copy.
struct Table {
    copies: Copies,
    declared: Option<Param>,
}

impl Table {
    fn of(shape: &ModelShape, chunks: &[Range<usize>]) -> Table {
        let first = chunks.iter().any(|layers| layers.start == 0);
        let last = chunks.iter().any(|layers| layers.end == shape.layers);
        let alone = !shape.tied() || (first && last);
        Table {
            copies: if alone { Copies::One } else { Copies::Tied { first } },
            declared: None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Experts, Selection};

    /// The list that all counts go over is the list of what a model declares, in the same order.
    #[test]
    fn a_model_declares_the_parameters_of_its_shape() {
        let llama = shapes::llamas::named("stories260k").unwrap();
        let Family::Llama(mut untied) = llama.family else {
            panic!("{llama:?}");
        };
        untied.tied = false;
        let untied = ModelShape { family: Family::Llama(untied), ..llama };
        let gpt = ModelShape { family: Family::Gpt, ..llama };
        let selection = Selection { bias: true, ..Selection::default() };
        let experts = Experts {
            count: 2,
            top_k: 1,
            ffn: 8,
            shared: 1,
            dense_layers: 1,
            selection,
            ..Experts::default()
        };
        let [of_gpt, of_llama] =
            [gpt, llama].map(|shape| ModelShape { experts: Some(experts), ..shape });
        for shape in [gpt, llama, untied, of_gpt, of_llama] {
            let model = Decoder::new(&shape).unwrap();
            let declared: Vec<Named> = model
                .params
                .specs()
                .iter()
                .map(|spec| (spec.name.clone(), spec.whole.shape.clone()))
                .collect();
            assert_eq!(declared, shape.named());
        }
    }

    #[test]
    fn models_that_can_only_be_planned_are_refused() {
        let gpt2 = ModelShape::gpt2(1, 4, 1, 5, 4);
        let dense = ModelShape { family: Family::Dense(gpt2.dense()), ..gpt2 };
        for shape in [gpt2, dense] {
            let error = Decoder::new(&shape).err().unwrap();
            assert!(error.to_string().contains("planned, and not trained"), "{error}");
        }
    }

    #[test]
    fn a_stage_has_the_parameters_that_its_shape_counts() {
        let family = Family::Gpt;
        let (vocabulary, block, layers, heads, embd) = (4000, 8, 8, 2, 16);
        let shape = ModelShape {
            vocabulary,
            block,
            layers,
            heads,
            embd,
            family,
            experts: None,
        };
        for layers in [0..8, 0..2, 2..5, 5..8] {
            let gpt = crate::model::Gpt::stage(&shape, layers.clone(), &Plain).unwrap();
            assert_eq!(gpt.params.numel() as u64, shape.stage_parameters(&layers), "{layers:?}");
        }
    }
}
