//! Mistakes of tensor parallelism, each of which trains on and looks plausible.

use candle_core::{Result, Shape};
use shardlab::comm::Comm;
use shardlab::mesh::Axis;
use shardlab::model::{Build, Exit, Layer, Linear, Pass, Role};
use shardlab::parallel::TensorParallel;
use shardlab::parallel::tensor::Operator;
use shardlab::tensor::{Activation, Copies, Cut, Param, Params, Spec, TensorOp, Whole, consume};
use std::ops::Range;
use std::sync::Arc;

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// The row-parallel layers forget the all-reduce of their summands
    NoG,
    /// The row-parallel layers average their summands instead of adding them up
    Mean,
    /// The last block's MLP is whole on every rank
    Unsharded,
    /// The ranks add up the gradient of the head's input twice
    HeadTwice,
    /// Each rank draws its slices with the same seed, and gets the same numbers
    SameSeed,
}

/// The initial values of [`Break::SameSeed`]: the slice takes the numbers from the first one on, as
/// a generator gives them to every rank that seeds it alike. The library's [`Spec::initial`] counts
/// from the slice's place in the whole matrix.
pub fn same_seed(seed: u64) -> impl Fn(&Spec, Range<usize>, &mut [f32]) {
    move |spec, elements, out| {
        let Whole { name, init, .. } = &spec.whole;
        init.fill(seed, name, elements.start, out);
    }
}

/// The builder of a model with one mistake.
pub struct Broken {
    pub tensor: TensorParallel,
    pub mistake: Break,
    /// The number of the last block.
    pub last: usize,
}

impl Build for Broken {
    fn around(&self) -> &dyn Build {
        &self.tensor
    }

    fn linear(&self, params: &Arc<Params>, whole: Whole, role: Role) -> Result<Box<dyn Layer>> {
        let row_parallel = matches!(role, Role::AttentionOut | Role::MlpOut);
        let group = self.tensor.group();
        let whole_layer =
            |params: &Arc<Params>, whole: Whole, cut, copies| -> Result<Box<dyn Layer>> {
                Ok(Box::new(Linear {
                    weight: params.declare_shard(whole.name.clone(), whole, cut, copies)?,
                    bias: None,
                }))
            };
        match self.mistake {
            Break::NoG if row_parallel => {
                let each = whole.shape[1] / group.size();
                let columns = group.rank() * each..(group.rank() + 1) * each;
                whole_layer(params, whole, Cut::Columns(columns), Copies::One)
            }
            Break::Mean if row_parallel => Ok(Box::new(Mean {
                sum: self.tensor.linear(params, whole, role)?,
                ranks: group.size(),
            })),
            Break::Unsharded
                if matches!(role, Role::MlpIn | Role::MlpOut)
                    && whole.name.starts_with(&format!("blocks.{}.", self.last)) =>
            {
                let copies = Copies::Same { axis: Axis::Tensor, first: group.rank() == 0 };
                whole_layer(params, whole, Cut::All, copies)
            }
            _ => self.tensor.linear(params, whole, role),
        }
    }

    fn exit(&self, tokens: Param) -> Box<dyn Exit> {
        let exit = self.tensor.exit(tokens);
        match self.mistake {
            Break::HeadTwice => Box::new(Twice { exit, group: self.tensor.group().clone() }),
            _ => exit,
        }
    }
}

/// A layer whose forward pass ends with an `all_reduce` that averages.
struct Mean {
    sum: Box<dyn Layer>,
    ranks: usize,
}

impl Layer for Mean {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        consume(self.sum.forward(x, pass)?, Divide(self.ranks as f32))
    }
}

/// Divides in the forward pass only.
struct Divide(f32);

impl TensorOp for Divide {
    const NAME: &'static str = "divide";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        Ok((x.iter().map(|x| x / self.0).collect(), dims.into()))
    }

    fn input_gradient(&self, _x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        Ok(dy.to_vec())
    }
}

/// Applies Megatron's f in front of a head that applies it, too.
struct Twice {
    exit: Box<dyn Exit>,
    group: Comm,
}

impl Exit for Twice {
    fn logits(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        self.exit.logits(x, pass)
    }

    fn loss(&self, x: &Activation, targets: &[u32], pass: &Pass) -> Result<Activation> {
        self.exit.loss(
            &Operator::Copy.apply(x.clone(), &self.group, pass.precision)?,
            targets,
            pass,
        )
    }
}
