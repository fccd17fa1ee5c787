//! DeepSpeed-Ulysses: ranks exchange heads for positions before attention, and back after it.
//!
//! ```text
//!               positions                                  positions
//!               mine   others                              all
//! heads  all    here   -           all-to-all     mine     here
//!                                  -->            others   -
//! ```

use crate::comm::Comm;
use crate::tensor::{Precision, Stored, TensorOp, apply, consume};
use candle_core::{Error, Result, Shape, Tensor, bail};
use half::bf16;

/// The exchange of rows with parts of these widths, such as queries, keys and values. Every part
/// consists of all heads, or of this rank's.
#[derive(Clone)]
pub(super) struct Exchanged {
    group: Comm,
    precision: Precision,
    widths: Vec<usize>,
    direction: Direction,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    /// From all heads of this rank's positions to this rank's heads of all positions.
    ToHeads,
    /// And back.
    ToPositions,
}

impl Exchanged {
    /// `widths`: of the parts of a row with all heads.
    pub fn new(group: &Comm, precision: Precision, widths: &[usize]) -> Exchanged {
        Exchanged {
            group: group.clone(),
            precision,
            widths: widths.to_vec(),
            direction: Direction::ToHeads,
        }
    }

    /// `x` [sequences, positions here, all heads] as [sequences, all positions, heads here].
    /// Positions are in the order of the ranks.
    /// Uses `x` up.
    pub fn to_heads(&self, x: Tensor) -> Result<Tensor> {
        consume(x, self.clone())
    }

    /// The reverse of [`Exchanged::to_heads`]. `x` stays: attention's backward pass reads it.
    pub fn to_positions(&self, x: &Tensor) -> Result<Tensor> {
        apply(x, Exchanged { direction: Direction::ToPositions, ..self.clone() })
    }

    fn exchange(
        &self,
        direction: Direction,
        label: &'static str,
        x: &[f32],
        sequences: usize,
    ) -> Result<Vec<f32>> {
        let group = self.group.labelled(label);
        match self.precision {
            Precision::F32 => self.exchange_as::<f32>(direction, &group, x, sequences),
            Precision::Bf16 => self.exchange_as::<bf16>(direction, &group, x, sequences),
        }
    }

    /// Numbers go to the others in the order [rank, sequence, position, its heads], and come from
    /// them in the same order.
    fn exchange_as<T: Stored>(
        &self,
        direction: Direction,
        group: &Comm,
        x: &[f32],
        sequences: usize,
    ) -> Result<Vec<f32>> {
        let x = T::narrowed(x);
        let mut sent = vec![T::zeroed(); x.len()];
        let mut received = sent.clone();
        let mut y = sent.clone();
        let here = sequences * self.positions(x.len(), sequences);
        match direction {
            Direction::ToHeads => {
                self.each_part(here, |of_rank, all| sent[of_rank].copy_from_slice(&x[all]));
                group.all_to_all(&sent, &mut received).map_err(Error::wrap)?;
                self.each_block(x.len(), sequences, |of_rank, of_all| {
                    y[of_all].copy_from_slice(&received[of_rank]);
                });
            }
            Direction::ToPositions => {
                self.each_block(x.len(), sequences, |of_rank, of_all| {
                    sent[of_rank].copy_from_slice(&x[of_all]);
                });
                group.all_to_all(&sent, &mut received).map_err(Error::wrap)?;
                self.each_part(here, |of_rank, all| y[all].copy_from_slice(&received[of_rank]));
            }
        }
        Ok(T::widened(y))
    }

    /// This rank's positions of a sequence, if all sequences have `numbers` numbers here.
    fn positions(&self, numbers: usize, sequences: usize) -> usize {
        numbers / (self.widths.iter().sum::<usize>() * sequences).max(1)
    }

    /// For each rank, row and part: where the rank's heads are in what it gets, [rank, row, heads],
    /// and in this rank's `rows` rows of all heads.
    fn each_part(
        &self,
        rows: usize,
        mut each: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let mut at = 0;
        let ranks = self.group.size();
        let width: usize = self.widths.iter().sum();
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

    /// For each rank and sequence: the rank's positions in [rank, sequence, ..], and in [sequence,
    /// rank, ..].
    fn each_block(
        &self,
        numbers: usize,
        sequences: usize,
        mut each: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let ranks = self.group.size();
        let block = numbers / (ranks * sequences).max(1);
        for rank in 0..ranks {
            for s in 0..sequences {
                let of_rank = (rank * sequences + s) * block;
                let of_all = (s * ranks + rank) * block;
                each(of_rank..of_rank + block, of_all..of_all + block);
            }
        }
    }
}

impl Direction {
    fn reverse(self) -> Direction {
        match self {
            Direction::ToHeads => Direction::ToPositions,
            Direction::ToPositions => Direction::ToHeads,
        }
    }
}

impl TensorOp for Exchanged {
    const NAME: &'static str = "context parallel";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let ranks = self.group.size();
        let shape = match (dims, self.direction) {
            (&[sequences, positions, width], Direction::ToHeads) => {
                (sequences, positions * ranks, width / ranks)
            }
            (&[sequences, positions, width], Direction::ToPositions) => {
                (sequences, positions / ranks, width * ranks)
            }
            _ => bail!("Ulysses takes [sequences, positions, heads], not {dims:?}"),
        };
        Ok((self.exchange(self.direction, "forward pass", x, dims[0])?, shape.into()))
    }

    fn input_gradient(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        self.exchange(self.direction.reverse(), "backward pass", dy, dims[0])
    }
}
