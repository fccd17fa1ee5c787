//! Tensor parallelism: every layer's matrices are cut among the ranks of a group (Shoeybi et al.,
//! arXiv 1909.08053).
//!
//! Each of t ranks holds 1/t of every matrix, and all ranks compute on the same sequences. The
//! ranks divide the heads of the attention, the inner width of the MLP, and the vocabulary of the
//! token table. A block takes two all-reduces of its activations in the forward pass and two in the
//! backward pass. In this library nothing hides them. Megatron-LM hides those of the backward pass
//! behind the weights' gradients (`async_tensor_model_parallel_allreduce`), and since 2023 those of
//! the forward pass, too (`tp_comm_overlap`; PyTorch: async TP). Either way the group should lie
//! inside a node. Every rank holds the norms, the positions and the residual stream. With sequence
//! parallelism the ranks also shard the stream by position (Korthikanti et al., arXiv 2205.05198).
//!
//! The model is the one GPT: [`TensorParallel`] is the builder that hands it sharded layers.
//!
//! Reading order: `operators.rs` (what is communicated), `mod.rs` (the layers), `vocabulary.rs`
//! (the sharded table, and the loss that never gathers logits).

mod operators;
mod vocabulary;

pub use operators::Operator;
pub use vocabulary::padded;

use crate::comm::Comm;
use crate::mesh::Axis;
use crate::model::{Build, Entry, Exit, Layer, Linear, Linears, Pass, Role};
use crate::parallel::partition::even;
use crate::tensor::{Activation, Copies, Cut, Param, Params, Slices, Spec, Whole};
use candle_core::Result;
use std::ops::Range;
use std::sync::Arc;
use vocabulary::{VocabularyEmbedding, VocabularyHead};

/// The builder of one rank's shard of a GPT.
///
/// Two ranks share every layer, and compute the loss of the whole model:
///
/// ```
/// use shardlab::launch;
/// use shardlab::model::{Build, Gpt, Input, Pass, Plain};
/// use shardlab::parallel::TensorParallel;
/// use shardlab::plan::{Family, ModelShape};
///
/// let (heads, embd, family, experts) = (2, 8, Family::Gpt, None);
/// let shape = ModelShape { vocabulary: 8, block: 4, layers: 1, heads, embd, family, experts };
/// let tokens = [0, 1, 2, 3];
/// let targets = [1, 2, 3, 4];
/// let loss = |build: &dyn Build, pass: &Pass| {
///     let gpt = Gpt::build(&shape, build)?;
///     gpt.params.allocate(1337); // a rank makes only its slices, of the same weights
///     let input = Input::Tokens { ids: &tokens, length: 4 };
///     let loss = gpt.forward(input, &targets, pass)?.scalar()?;
///     anyhow::Ok((gpt.params.numel(), loss))
/// };
/// let whole = loss(&Plain, &Pass::evaluate())?;
/// let ranks = launch::run(2, |comm| {
///     let tensor = TensorParallel::new(comm);
///     loss(&tensor, &tensor.pass(Pass::evaluate(), 4))
/// })?;
/// assert!(ranks[0].0 < whole.0);
/// assert!((ranks[0].1 - whole.1).abs() < 1e-5);
/// # anyhow::Ok(())
/// ```
#[derive(Clone)]
pub struct TensorParallel {
    group: Comm,
    /// Whether the residual stream is sharded by position.
    sequence: bool,
    /// The table has a multiple of this many rows on each rank.
    multiple: usize,
}

impl TensorParallel {
    /// For the ranks of `group`: the residual stream is whole on each of them, and the vocabulary
    /// has as much padding as its division needs.
    pub fn new(group: Comm) -> TensorParallel {
        TensorParallel { group, sequence: false, multiple: 1 }
    }

    /// Shards the residual stream by position: sequence parallelism. Between the matrices, a rank
    /// computes and keeps only its positions, and bytes on the wire are the same.
    pub fn sequence_parallel(self) -> TensorParallel {
        TensorParallel { sequence: true, ..self }
    }

    /// Pads the vocabulary to a multiple of `multiple` rows per rank; Megatron-LM takes 128, so
    /// that matrices keep sizes that a GPU likes. 0 and 1 add no more than the division needs.
    pub fn pad_vocabulary_to(self, multiple: usize) -> TensorParallel {
        TensorParallel { multiple: multiple.max(1), ..self }
    }

    /// `pass` over sequences of `length` tokens as this rank takes part in it: with the dropout
    /// masks of its positions.
    pub fn pass(&self, mut pass: Pass, length: usize) -> Pass {
        if let Some(dropout) = &mut pass.dropout {
            dropout.slices = self.stream(&pass.slices, length);
        }
        pass
    }

    /// The positions whose residual stream is on this rank, out of the `length` positions of
    /// `slices`.
    fn stream(&self, slices: &Slices, length: usize) -> Slices {
        if self.sequence {
            slices.part(self.share(length))
        } else {
            slices.clone()
        }
    }

    /// The ranks that share the model.
    pub fn group(&self) -> &Comm {
        &self.group
    }

    /// Puts a matrix together on every rank from the ranks' slices. `mine` is this rank's, of the
    /// parameter `spec`. Each of t ranks sends (t-1)/t of the matrix. All ranks call it.
    ///
    /// # Errors
    /// If the collective fails.
    pub fn gather(&self, spec: &Spec, mine: Vec<f32>) -> anyhow::Result<Vec<f32>> {
        let Spec { whole, cut, .. } = spec;
        if *cut == Cut::All {
            return Ok(mine);
        }
        let mut slices = vec![0.0; mine.len() * self.group.size()];
        self.group.labelled("slices of a matrix").all_gather(&mine, &mut slices)?;
        let mut all = vec![0.0; whole.shape.iter().product()];
        for (rank, slice) in slices.chunks(mine.len()).enumerate() {
            cut.on(self.group.rank(), rank).runs(whole, 0..slice.len(), |run, at| {
                all[at..at + run.len()].copy_from_slice(&slice[run]);
            });
        }
        Ok(all)
    }

    /// Whether a rank's gradient of a parameter that all ranks hold, such as a norm's, is only one
    /// summand. It is with sequence parallelism, because the rank has seen only its positions.
    /// Without, every rank has the whole gradient.
    pub fn has_partial_gradients(&self) -> bool {
        self.sequence && self.group.size() > 1
    }

    /// This rank's range of `n` things, which the group's ranks divide evenly.
    fn share(&self, n: usize) -> Range<usize> {
        even(&self.group, n)
    }

    /// The operator before a column-parallel matrix.
    fn enter(&self) -> Parallel {
        self.operator(Operator::Copy, Operator::Gather)
    }

    /// The operator after a row-parallel matrix.
    fn leave(&self) -> Parallel {
        self.operator(Operator::Sum, Operator::Scatter)
    }

    fn operator(&self, of_whole: Operator, of_slices: Operator) -> Parallel {
        let operator = if self.sequence { of_slices } else { of_whole };
        Parallel { operator, group: self.group.clone() }
    }

    /// A parameter that every rank of the group holds whole; the first one counts it.
    fn declare_same(&self, params: &Arc<Params>, whole: Whole) -> Result<Param> {
        let copies = Copies::Same { axis: Axis::Tensor, first: self.group.rank() == 0 };
        params.declare_shard(whole.name.clone(), whole, Cut::All, copies)
    }
}

impl Build for TensorParallel {
    fn linear(&self, params: &Arc<Params>, whole: Whole, role: Role) -> Result<Box<dyn Layer>> {
        let rows = whole.shape[0];
        let columns = whole.shape[1];
        let cut = match role {
            Role::AttentionIn => Cut::stacked(3, rows / 3, self.share(rows / 3)),
            Role::MlpIn => Cut::rows(self.share(rows)),
            Role::AttentionOut | Role::MlpOut => Cut::Columns(self.share(columns)),
        };
        let linear = Linear {
            weight: params.declare_shard(whole.name.clone(), whole, cut, Copies::One)?,
            bias: None,
        };
        Ok(match role {
            Role::AttentionIn | Role::MlpIn => {
                Box::new(ColumnParallel { enter: self.enter(), linear: Box::new(linear) })
            }
            Role::AttentionOut | Role::MlpOut => {
                Box::new(RowParallel { linear, leave: self.leave() })
            }
        })
    }

    fn linears(
        &self,
        params: &Arc<Params>,
        wholes: Vec<Whole>,
        _role: Role,
    ) -> Result<Box<dyn Layer>> {
        let declare = |whole: Whole| {
            let cut = Cut::rows(self.share(whole.shape[0]));
            params.declare_shard(whole.name.clone(), whole, cut, Copies::One)
        };
        let weights = wholes.into_iter().map(declare).collect::<Result<_>>()?;
        Ok(Box::new(ColumnParallel {
            enter: self.enter(),
            linear: Box::new(Linears { weights }),
        }))
    }

    fn gain(&self, params: &Arc<Params>, whole: Whole) -> Result<Param> {
        self.declare_same(params, whole)
    }

    fn table(&self, params: &Arc<Params>, whole: Whole, copies: Copies) -> Result<Param> {
        let rows = self.share(padded(whole.shape[0], self.group.size(), self.multiple));
        params.declare_shard(whole.name.clone(), whole, Cut::rows(rows), copies)
    }

    fn entry(
        &self,
        params: &Arc<Params>,
        tokens: Param,
        positions: Option<Whole>,
    ) -> Result<Box<dyn Entry>> {
        let positions = positions.map(|whole| self.declare_same(params, whole)).transpose()?;
        Ok(Box::new(VocabularyEmbedding {
            tokens,
            positions,
            leave: self.leave(),
            build: self.clone(),
        }))
    }

    fn exit(&self, tokens: Param) -> Box<dyn Exit> {
        Box::new(VocabularyHead { enter: self.enter(), weight: tokens })
    }

    fn heads(&self, all: usize) -> Range<usize> {
        self.share(all)
    }
}

/// An operator, and the group whose ranks apply it.
struct Parallel {
    operator: Operator,
    group: Comm,
}

impl Parallel {
    fn apply(&self, x: Activation, pass: &Pass) -> Result<Activation> {
        if self.group.size() == 1 {
            Ok(x)
        } else {
            self.operator.apply(x, &self.group, pass.precision)
        }
    }
}

/// Some columns of the result: Y = [X·A₁ | X·A₂]. A weight is stored transposed, so a rank stores
/// some of its rows.
struct ColumnParallel {
    enter: Parallel,
    linear: Box<dyn Layer>,
}

impl Layer for ColumnParallel {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        self.linear.forward(&self.enter.apply(x.clone(), pass)?, pass)
    }
}

/// One summand of the result, from some columns of the input: Y = X₁·A₁ + X₂·A₂. Of the stored
/// weight these are columns.
struct RowParallel {
    linear: Linear,
    leave: Parallel,
}

impl Layer for RowParallel {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        self.leave.apply(self.linear.forward(x, pass)?, pass)
    }
}
