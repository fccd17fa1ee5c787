//! DeepSpeed-Ulysses: ranks exchange heads for positions before attention, and back after it.
//!
//! ```text
//!               positions                                  positions
//!               mine   others                              all
//! heads  all    here   -           all-to-all     mine     here
//!                                  -->            others   -
//! ```

use crate::comm::Comm;
use crate::parallel::wire::exchange_axes;
use crate::tensor::stored::by_precision;
use crate::tensor::{Activation, Precision, Stored, TensorOp, consume};
use candle_core::{Error, Result, Shape, bail};
use std::ops::Range;

/// The exchange of rows with parts of these widths, such as queries, keys and values. Every part
/// consists of all heads, or of this rank's.
#[derive(Clone)]
pub(super) struct Exchanged {
    group: Comm,
    precision: Precision,
    widths: Vec<usize>,
    /// From all heads of this rank's positions to this rank's heads of all positions, or back.
    to_heads: bool,
}

impl Exchanged {
    /// `widths`: of the parts of a row with all heads.
    pub fn new(group: &Comm, precision: Precision, widths: &[usize]) -> Exchanged {
        Exchanged {
            group: group.clone(),
            precision,
            widths: widths.to_vec(),
            to_heads: true,
        }
    }

    /// `x` [sequences, positions here, all heads] as [sequences, all positions, heads here].
    /// Positions are in the order of the ranks.
    pub fn to_heads(&self, x: Activation) -> Result<Activation> {
        consume(x, self.clone())
    }

    /// The reverse of [`Exchanged::to_heads`].
    pub fn to_positions(&self, x: Activation) -> Result<Activation> {
        consume(x, Exchanged { to_heads: false, ..self.clone() })
    }

    fn exchange(
        &self,
        to_heads: bool,
        label: &'static str,
        x: &[f32],
        sequences: usize,
    ) -> Result<Vec<f32>> {
        let group = self.group.labelled(label);
        by_precision!(self.precision, T => self.exchange_as::<T>(to_heads, &group, x, sequences))
    }

    /// Numbers go to the others in the order [rank, sequence, position, its heads], and come from
    /// them in the same order.
    fn exchange_as<T: Stored>(
        &self,
        to_heads: bool,
        group: &Comm,
        x: &[f32],
        sequences: usize,
    ) -> Result<Vec<f32>> {
        let ranks = group.size();
        let x = T::narrowed(x);
        let mut sent = vec![T::zeroed(); x.len()];
        let mut received = sent.clone();
        let mut y = sent.clone();
        if to_heads {
            self.each_part(x.len(), |of_rank, all| sent[of_rank].copy_from_slice(&x[all]));
            group.all_to_all(&sent, &mut received).map_err(Error::wrap)?;
            exchange_axes(&received, [ranks, sequences], &mut y);
        } else {
            exchange_axes(&x, [sequences, ranks], &mut sent);
            group.all_to_all(&sent, &mut received).map_err(Error::wrap)?;
            self.each_part(x.len(), |of_rank, all| y[all].copy_from_slice(&received[of_rank]));
        }
        Ok(T::widened(y))
    }

    /// For each rank, row and part: where the rank's heads are in what it gets, [rank, row, heads],
    /// and in this rank's rows of all heads, which have `numbers` numbers.
    fn each_part(&self, numbers: usize, mut each: impl FnMut(Range<usize>, Range<usize>)) {
        let mut at = 0;
        let ranks = self.group.size();
        let width: usize = self.widths.iter().sum();
        let rows = numbers / width.max(1);
        for rank in 0..ranks {
            for row in 0..rows {
                let mut start = row * width;
                for part in &self.widths {
                    let heads = part / ranks;
                    let from = start + rank * heads;
                    each(at..at + heads, from..from + heads);
                    at += heads;
                    start += part;
                }
            }
        }
    }
}

impl TensorOp for Exchanged {
    const NAME: &'static str = "context parallel";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let ranks = self.group.size();
        let &[sequences, positions, width] = dims else {
            bail!("Ulysses takes [sequences, positions, heads], not {dims:?}")
        };
        let shape = if self.to_heads {
            (sequences, positions * ranks, width / ranks)
        } else {
            (sequences, positions / ranks, width * ranks)
        };
        Ok((self.exchange(self.to_heads, "forward pass", x, sequences)?, shape.into()))
    }

    fn input_gradient(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        self.exchange(!self.to_heads, "backward pass", dy, dims[0])
    }
}
