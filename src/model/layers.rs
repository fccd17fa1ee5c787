//! The layers of a transformer.

use super::balance::Balance;
use crate::tensor::{self, Activation, Dropout, Operand, Param, Precision, Slices, Tape};
use candle_core::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// The purpose of a forward pass.
#[derive(Clone, Default)]
pub struct Pass {
    /// Whether a backward pass will follow: then the pass makes a tape.
    pub train: bool,
    /// `None` drops no elements.
    pub dropout: Option<Dropout>,
    /// Whether products of few rows read each weight once and copy none, which is the faster way to
    /// generate. Their sums have a different order, so passes that are compared with training do
    /// without.
    pub few_rows: bool,
    /// The type of matrix products' factors, of the residual stream, and of activations that ranks
    /// send. All other arithmetic is f32.
    pub precision: Precision,
    /// The positions of every sequence that are here: all of them, unless ranks share sequences, or
    /// an earlier pass had the first ones.
    pub slices: Slices,
    /// Attention that reaches positions of other ranks or of earlier passes, or ends at a document;
    /// `None` is attention over whole sequences.
    pub attention: Option<Arc<dyn Attend>>,
    /// The factor for this pass's loss; `None` is 1. A mean of means is the mean of all tokens only
    /// if each has its part of the tokens.
    pub weight: Option<f64>,
    /// Watches the routers of a model with experts, and keeps their choices even.
    pub balance: Option<Arc<Balance>>,
}

/// Attention over sequences of which this pass has slices, or in which documents are packed.
pub trait Attend: Send + Sync {
    /// Attention over `qkv` [sequences, positions here, numbers]: each query's result [sequences,
    /// positions here, query heads · width]. A row of `qkv` holds all queries, keys and values; its
    /// memory may be used up.
    ///
    /// # Errors
    /// If a row does not consist of these heads, or a rank has ended with which it communicates.
    fn attend(
        &self,
        qkv: Activation,
        heads: &Heads,
        pass: &Pass,
        layer: &str,
    ) -> Result<Activation>;
}

/// One layer's heads on this rank.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Query heads, out of the whole layer's.
    pub queries: Range<usize>,
    /// The number of key and value heads.
    pub kv: usize,
}

impl Pass {
    /// A pass that evaluates or generates: no tape, no dropout.
    pub fn evaluate() -> Pass {
        Pass::default()
    }

    /// A pass that a backward pass will follow.
    pub fn training(dropout: Option<Dropout>) -> Pass {
        Pass { train: true, dropout, ..Pass::default() }
    }

    /// Looks up `ids`, sequences of `length`, in a table `[V, D]`. Where a backward
    /// pass follows, its tape begins here.
    pub(crate) fn embed(&self, ids: &[u32], length: usize, table: &Param) -> Result<Activation> {
        let tape = self.train.then(Tape::default);
        tensor::embed(ids, length, table, tape.as_ref())
    }

    /// Applies dropout to `x`. The name of the layer decides which elements it drops.
    ///
    /// # Errors
    /// If `x` has no two dimensions to number its rows by, or other sequences than the batch.
    pub fn drop<X: Operand>(&self, x: X, layer: &str) -> Result<X> {
        match &self.dropout {
            Some(rules) => tensor::dropout(&x, rules, layer),
            None => Ok(x),
        }
    }

    /// Rounds the residual stream to this pass's type, and its gradient in the backward pass.
    ///
    /// # Errors
    /// If `x` is not f32.
    pub fn rounded(&self, x: Activation) -> Result<Activation> {
        match self.precision {
            Precision::F32 => Ok(x),
            Precision::Bf16 => tensor::round_to_bf16(x),
        }
    }

    /// The product `x · Wᵀ`.
    ///
    /// # Errors
    /// As [`tensor::linear`].
    pub fn linear(&self, x: &Activation, weight: &Param) -> Result<Activation> {
        if self.few_rows {
            tensor::linears_of_few_rows(x, &[weight])
        } else {
            tensor::linear(x, weight, self.precision)
        }
    }
}

/// A function of activations with its own weights: [S, L, D] in and out.
pub trait Layer: Send + Sync {
    /// Applies the layer to `x`.
    ///
    /// # Errors
    /// If `x` has a different width, or the layer's weights are not here.
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation>;

    /// The same for whoever has candle's tensors: the layer is one node of their graph.
    ///
    /// # Errors
    /// As [`Layer::forward`].
    fn on_graph(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        tensor::node(x, |x| self.forward(x, pass))
    }
}

/// The first layer: tokens enter the model here.
pub trait Entry: Send + Sync {
    /// Embeds `ids`, sequences of `length` tokens one after the other: [S, L, D].
    ///
    /// # Errors
    /// If an id is not in the vocabulary, or the tables are not here.
    fn forward(&self, ids: &[u32], length: usize, pass: &Pass) -> Result<Activation>;
}

/// The last layer: activations leave the model here. Head and loss are one layer, so ranks that
/// shard the vocabulary can compute the loss without gathering whole rows of logits.
pub trait Exit: Send + Sync {
    /// Logits of normed activations `x` [S, L, D]: [sequences, length,
    /// vocabulary].
    ///
    /// # Errors
    /// If `x` has a different width, or the head's matrix is not here.
    fn logits(&self, x: &Activation, pass: &Pass) -> Result<Activation>;

    /// The mean cross-entropy of `targets`, one for each row of `x`: a scalar.
    ///
    /// # Errors
    /// As [`Exit::logits`], and if there is not one target for each row.
    fn loss(&self, x: &Activation, targets: &[u32], pass: &Pass) -> Result<Activation>;
}

/// `x · Wᵀ`, plus the bias if there is one.
pub struct Linear {
    /// `[out, in]`
    pub weight: Param,
    /// `[out]`
    pub bias: Option<Param>,
}

impl Layer for Linear {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        match &self.bias {
            None => pass.linear(x, &self.weight),
            Some(bias) => tensor::linear_bias(x, &self.weight, bias, pass.precision),
        }
    }
}

/// A [`Linear`] whose rows are cut into tiles, each with its own parameter. ZeRO-3 then gathers
/// only one tile at a time: DeepSpeed's memory-centric tiling.
pub struct TiledLinear {
    pub tiles: Vec<Linear>,
}

impl Layer for TiledLinear {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let parts: Vec<Activation> =
            self.tiles.iter().map(|tile| tile.forward(x, pass)).collect::<Result<_>>()?;
        tensor::side_by_side(&parts)
    }
}

/// Several matrices with the same input. Their results stand side by side.
pub struct Linears {
    /// `[out, in]` each.
    pub weights: Vec<Param>,
}

impl Layer for Linears {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let weights: Vec<&Param> = self.weights.iter().collect();
        if pass.few_rows {
            tensor::linears_of_few_rows(x, &weights)
        } else {
            tensor::linears(x, &weights, pass.precision)
        }
    }
}

/// Layer norm with a gain and no bias.
pub struct LayerNorm {
    /// `[D]`
    pub gain: Param,
}

impl Layer for LayerNorm {
    fn forward(&self, x: &Activation, _pass: &Pass) -> Result<Activation> {
        tensor::layer_norm(x, &self.gain)
    }
}

/// RMSNorm with a gain.
pub struct RmsNorm {
    /// `[D]`
    pub gain: Param,
    /// Added to the mean square.
    pub epsilon: f32,
}

impl Layer for RmsNorm {
    fn forward(&self, x: &Activation, _pass: &Pass) -> Result<Activation> {
        tensor::rms_norm(x, &self.gain, self.epsilon)
    }
}

/// Token embedding, plus position embedding if there is one.
pub struct Embedding {
    /// `[V, D]`
    pub tokens: Param,
    /// `[L, D]`
    pub positions: Option<Param>,
}

impl Entry for Embedding {
    fn forward(&self, ids: &[u32], length: usize, pass: &Pass) -> Result<Activation> {
        let x = pass.embed(ids, length, &self.tokens)?;
        let x = match &self.positions {
            Some(positions) => tensor::add_positions(x, positions, &pass.slices)?,
            None => x,
        };
        pass.rounded(pass.drop(x, "embedding")?)
    }
}

/// The head and the cross-entropy. The head's matrix is the token table in most models.
pub struct Head {
    /// `[V, D]`
    pub weight: Param,
}

impl Exit for Head {
    fn logits(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        pass.linear(x, &self.weight)
    }

    fn loss(&self, x: &Activation, targets: &[u32], pass: &Pass) -> Result<Activation> {
        tensor::cross_entropy(&self.logits(x, pass)?, targets)
    }
}

/// Self-attention: the qkv matrix, the attention itself, and the projection back.
pub struct Attention {
    pub qkv: Box<dyn Layer>,
    pub proj: Box<dyn Layer>,
    pub heads: Heads,
    /// The layer's name, which decides its dropout masks.
    pub name: String,
}

impl Layer for Attention {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let qkv = self.qkv.forward(x, pass)?;
        let y = match &pass.attention {
            Some(attention) => attention.attend(qkv, &self.heads, pass, &self.name)?,
            None => {
                let dropout = pass.dropout.as_ref().map(|rules| (rules, self.name.as_str()));
                let Range { start, end } = self.heads.queries;
                tensor::causal_attention(&qkv, end - start, start, dropout, pass.precision)?
            }
        };
        pass.drop(self.proj.forward(&y, pass)?, &format!("{}.proj", self.name))
    }
}

/// A block's MLP: two matrices with GELU between them.
pub struct Mlp {
    pub fc: Box<dyn Layer>,
    pub out: Box<dyn Layer>,
    pub name: String,
}

impl Layer for Mlp {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let x = tensor::gelu(self.fc.forward(x, pass)?)?;
        pass.drop(self.out.forward(&x, pass)?, &format!("{}.out", self.name))
    }
}

/// A pre-norm transformer block: `x + attention(norm(x))`, then `x + mlp(norm(x))`.
pub struct Block {
    pub norm1: Box<dyn Layer>,
    pub attention: Box<dyn Layer>,
    pub norm2: Box<dyn Layer>,
    pub mlp: Box<dyn Layer>,
}

impl Layer for Block {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let half = |x: &Activation, norm: &dyn Layer, layer: &dyn Layer| {
            pass.rounded(tensor::sum(x, layer.forward(&norm.forward(x, pass)?, pass)?)?)
        };
        let x = half(x, &*self.norm1, &*self.attention)?;
        half(&x, &*self.norm2, &*self.mlp)
    }
}

/// Blocks of which the backward pass keeps only the input, and which it runs again.
pub struct Recomputed {
    pub blocks: Arc<[Box<dyn Layer>]>,
}

impl Layer for Recomputed {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        // Dropout masks are functions of the step and the layer, so the second pass drops what the
        // first one dropped.
        let blocks = self.blocks.clone();
        let pass = pass.clone();
        tensor::recompute(x, move |x| {
            blocks.iter().try_fold(x.clone(), |x, block| block.forward(&x, &pass))
        })
    }
}
