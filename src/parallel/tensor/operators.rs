//! The operators between a layer's shards and the residual stream: pairs of which each is the
//! other's backward pass.
//!
//! A column-parallel matrix gives each rank some columns of the result; a row-parallel one takes
//! those columns and gives each rank one summand of the result. Between them nothing is
//! communicated. Before the first, every rank's gradient of `x` is one summand; after the second,
//! every rank's result is one. Megatron-LM calls the two operators f and g (Shoeybi et al.,
//! arXiv 1909.08053); with sequence parallelism they are g and ḡ (Korthikanti et al.,
//! arXiv 2205.05198), which send as many bytes here and in PyTorch, and between layers each rank
//! holds its slice of every sequence only. Megatron-LM keeps only its slice of what g has gathered,
//! and gathers it again in the backward pass: the bytes of five all-reduces per block, not four.
//!
//! ```text
//!               forward            backward
//! f  Copy       nothing            all-reduce
//! g  Sum        all-reduce         nothing
//! g  Gather     all-gather         reduce-scatter     sequence parallelism
//! ḡ  Scatter    reduce-scatter     all-gather         sequence parallelism
//! ```

use crate::comm::{Comm, Reduce};
use crate::parallel::wire::exchange_axes;
use crate::tensor::stored::by_precision;
use crate::tensor::{Operand, Precision, Stored, TensorOp, consume};
use candle_core::{Error, Result, Shape, bail};

/// A function of activations that all ranks of a tensor group apply together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Megatron's f: every rank goes on with the same `x`.
    Copy,
    /// Megatron's g: the sum of all ranks' summands, on every rank.
    Sum,
    /// Korthikanti's g: the ranks' slices of each sequence, put together on every rank.
    Gather,
    /// Korthikanti's ḡ: the sum of all ranks' summands, of which each rank keeps its slice of each
    /// sequence.
    Scatter,
}

impl Operator {
    /// The operator that the backward pass applies to the gradient.
    pub fn conjugate(self) -> Operator {
        match self {
            Operator::Copy => Operator::Sum,
            Operator::Sum => Operator::Copy,
            Operator::Gather => Operator::Scatter,
            Operator::Scatter => Operator::Gather,
        }
    }

    /// Applies the operator to `x` [S, L, D], which is used up: no backward pass
    /// needs its elements. What ranks send has type `precision`.
    ///
    /// # Errors
    /// If the collective fails, or the positions cannot be divided among the ranks.
    pub fn apply<X: Operand>(self, x: X, group: &Comm, precision: Precision) -> Result<X> {
        consume(x, Applied { operator: self, group: group.clone(), precision })
    }

    /// The result's shape.
    fn shape(self, ranks: usize, dims: &[usize]) -> Result<Vec<usize>> {
        match (self, dims) {
            (Operator::Copy | Operator::Sum, _) => Ok(dims.to_vec()),
            (Operator::Gather, &[sequences, length, width]) => {
                Ok(vec![sequences, length * ranks, width])
            }
            (Operator::Scatter, &[sequences, length, width]) if length.is_multiple_of(ranks) => {
                Ok(vec![sequences, length / ranks, width])
            }
            _ => bail!(
                "activations of shape {dims:?} cannot be sharded by position among {ranks} ranks\n\
                 help: sequence parallelism needs sequences whose length the tensor ranks divide"
            ),
        }
    }

    /// The result's elements, for `x` of shape `dims`, where ranks send numbers of type `T`.
    fn communicate<T: Stored>(self, group: &Comm, x: &[f32], dims: &[usize]) -> Result<Vec<f32>> {
        let ranks = group.size();
        let shape = self.shape(group.size(), dims)?;
        let zeros = || vec![T::zeroed(); shape.iter().product()];
        let y = match self {
            Operator::Copy => return Ok(x.to_vec()),
            Operator::Sum => {
                let mut y = T::narrowed(x);
                group.all_reduce(&mut y, Reduce::Sum).map_err(Error::wrap)?;
                y
            }
            // A rank's part of a collective is contiguous; its slices of several sequences are not.
            Operator::Gather => {
                let mut y = zeros();
                let parts = group.gathered(&T::narrowed(x)).map_err(Error::wrap)?;
                exchange_axes(&parts, [ranks, dims[0]], &mut y);
                y
            }
            Operator::Scatter => {
                let x = T::narrowed(x);
                let mut parts = x.clone();
                let mut y = zeros();
                exchange_axes(&x, [dims[0], ranks], &mut parts);
                group.reduce_scatter(&parts, &mut y, Reduce::Sum).map_err(Error::wrap)?;
                y
            }
        };
        Ok(T::widened(y))
    }
}

/// The collectives of the two passes have different labels. A rank that runs a forward pass while
/// its neighbour runs a backward pass would otherwise add up numbers of the same length, but with a
/// different meaning.
struct Applied {
    operator: Operator,
    group: Comm,
    precision: Precision,
}

impl Applied {
    fn communicate(
        &self,
        operator: Operator,
        label: &'static str,
        x: &[f32],
        dims: &[usize],
    ) -> Result<Vec<f32>> {
        let group = self.group.labelled(label);
        by_precision!(self.precision, T => operator.communicate::<T>(&group, x, dims))
    }
}

impl TensorOp for Applied {
    const NAME: &'static str = "tensor parallel";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let shape = self.operator.shape(self.group.size(), dims)?;
        Ok((self.communicate(self.operator, "forward pass", x, dims)?, shape.into()))
    }

    fn input_gradient(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let shape = self.operator.shape(self.group.size(), dims)?;
        self.communicate(self.operator.conjugate(), "backward pass", dy, &shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch;
    use crate::tensor::Activation;

    /// Each rank's result and gradient, for x = 10^rank × (1, 2, …) and a gradient that is 1, 2, …
    /// on rank 0, and 10^r times that on rank r.
    fn run(operator: Operator, dims: [usize; 3]) -> Vec<(Vec<f32>, Vec<f32>)> {
        let numbers = |rank: usize, n: usize| {
            (1..=n).map(|i| i as f32 * 10f32.powi(rank as i32)).collect::<Vec<_>>()
        };
        launch::run(2, |comm| {
            let x = Activation::start(numbers(comm.rank(), dims.iter().product()), &dims)?;
            let y = operator.apply(x.clone(), &comm, Precision::F32)?;
            let dy = numbers(comm.rank(), y.numbers().len());
            let found = y.numbers().to_vec();
            Ok((found, y.backward(dy, None)?.of(&x)?))
        })
        .unwrap()
    }

    #[test]
    fn each_operator_is_the_others_backward_pass() {
        let one = vec![1.0, 2.0, 3.0, 4.0];
        let ten = vec![10.0, 20.0, 30.0, 40.0];
        let sum = vec![11.0, 22.0, 33.0, 44.0];
        assert_eq!(
            run(Operator::Copy, [1, 2, 2]),
            [(one.clone(), sum.clone()), (ten.clone(), sum.clone())]
        );
        assert_eq!(run(Operator::Sum, [1, 2, 2]), [(sum.clone(), one), (sum, ten)]);
        // Two sequences of two positions: rank 0 holds the first position of each, rank 1 the
        // second.
        let gathered = vec![1.0, 10.0, 2.0, 20.0];
        assert_eq!(
            run(Operator::Gather, [2, 1, 1]),
            [(gathered.clone(), vec![11.0, 33.0]), (gathered, vec![22.0, 44.0])]
        );
        let spread = |factor: f32| [1.0, 10.0, 2.0, 20.0].map(|x| x * factor).to_vec();
        assert_eq!(
            run(Operator::Scatter, [2, 2, 1]),
            [(vec![11.0, 33.0], spread(1.0)), (vec![22.0, 44.0], spread(1.0))]
        );
    }

    /// An activation in bf16 is sent in two bytes, and its gradient too.
    #[test]
    fn bf16_sends_half_of_the_bytes() {
        let sent = |operator: Operator, precision| {
            let sent = launch::run(2, |comm| {
                let x = Activation::start(vec![1.0; 16], (2, 4, 2))?;
                let y = operator.apply(x, &comm, precision)?;
                let forward = comm.traffic().bytes;
                let dy = vec![1.0; y.numbers().len()];
                y.backward(dy, None)?;
                Ok([forward, comm.traffic().bytes - forward])
            });
            sent.unwrap()[0]
        };
        for operator in [Operator::Copy, Operator::Sum, Operator::Gather, Operator::Scatter] {
            let whole = sent(operator, Precision::F32);
            assert_eq!(sent(operator, Precision::Bf16).map(|half| 2 * half), whole);
            assert!(whole[0] + whole[1] > 0, "{operator:?}");
        }
    }

    #[test]
    fn a_length_that_the_ranks_do_not_divide_is_refused() {
        let refused = Operator::Scatter.shape(2, &[1, 3, 4]).unwrap_err().to_string();
        assert!(refused.contains("sharded by position among 2 ranks"), "{refused}");
    }
}
