//! Token and position embedding: tokens enter the model here. These are two operations, because
//! ranks that shard the token table add up their rows in between.

use super::Slices;
use super::operation::{Operand, TensorOp, begun, consume};
use super::params::Param;
use super::tape::{Activation, Tape};
use candle_core::{Result, Shape, bail};
use std::ops::Range;

/// Looks up row `ids[s][t]` of `tokens` [V, D], for sequences of `length` tokens:
/// [S, L, D]. A rank with a shard of the table writes zeros for the tokens whose
/// rows it does not hold. The sum over ranks is the embedding.
///
/// The pass's tape, if it has one, begins here.
///
/// # Errors
/// If an id is not in the vocabulary, or the table is not here.
pub fn embed(
    ids: &[u32],
    length: usize,
    tokens: &Param,
    tape: Option<&Tape>,
) -> Result<Activation> {
    begun(tape, Embed { ids: ids.to_vec(), length, tokens: tokens.handle() })
}

struct Embed {
    ids: Vec<u32>,
    length: usize,
    tokens: Param,
}

impl Embed {
    /// The tokens whose rows this rank holds.
    fn here(&self) -> Range<usize> {
        let spec = self.tokens.spec();
        spec.cut.row_range(&spec.whole)
    }
}

impl TensorOp for Embed {
    const NAME: &'static str = "embedding";
    const HAS_WEIGHTS: bool = true;

    fn forward(&self, _x: &[f32], _dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let whole = &self.tokens.spec().whole;
        let here = self.here();
        let vocabulary = whole.shape[0];
        let width = whole.shape[1];
        if self.length == 0 || !self.ids.len().is_multiple_of(self.length) {
            bail!("{} tokens are not sequences of {} each", self.ids.len(), self.length);
        }
        if let Some(id) = self.ids.iter().find(|&&id| id as usize >= vocabulary) {
            bail!("token {id} is outside the vocabulary of {vocabulary}");
        }
        let mut y = vec![0.0; self.ids.len() * width];
        for (&id, y) in self.ids.iter().zip(y.chunks_exact_mut(width)) {
            if here.contains(&(id as usize)) {
                let row = id as usize - here.start;
                y.copy_from_slice(&self.tokens.elements(row * width..(row + 1) * width)?);
            }
        }
        Ok((y, (self.ids.len() / self.length, self.length, width).into()))
    }

    fn input_gradient(&self, _x: &[f32], _dims: &[usize], _dy: &[f32]) -> Result<Vec<f32>> {
        Ok(Vec::new()) // tokens have none
    }

    /// Adds each token's gradient to its row of the table.
    fn weight_gradients(&self, _x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<()> {
        let here = self.here();
        let width = self.tokens.spec().shape[1];
        self.tokens.add_gradient(|sum| {
            let all = self.ids.iter().zip(dy.chunks_exact(width));
            for (&id, dy) in all.filter(|(id, _)| here.contains(&(**id as usize))) {
                add(&mut sum[(id as usize - here.start) * width..][..width], dy);
            }
        })
    }
}

/// Adds to every sequence of `x` [S, L, D] the rows of `positions` [L, D]
/// that belong to its `slices`.
///
/// Frees the memory of `x`, which no backward pass needs.
///
/// # Errors
/// If the sequences are longer than the table, or the table is not here.
pub fn add_positions<X: Operand>(x: X, positions: &Param, slices: &Slices) -> Result<X> {
    consume(x, AddPositions { positions: positions.handle(), slices: slices.clone() })
}

struct AddPositions {
    positions: Param,
    slices: Slices,
}

impl AddPositions {
    /// The position after the last of `length` rows.
    fn end(&self, length: usize) -> usize {
        self.slices.runs(0..length).map(|(_, places)| places.end).max().unwrap_or(0)
    }
}

impl TensorOp for AddPositions {
    const NAME: &'static str = "embedding";
    const HAS_WEIGHTS: bool = true;

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let block = self.positions.spec().shape[0];
        let width = self.positions.spec().shape[1];
        let length = match *dims {
            [_, length, w] if length > 0 && self.end(length) <= block && w == width => length,
            _ => bail!("{dims:?} are not sequences of 1 to {block} positions, {width} wide"),
        };
        let positions = self.positions.value()?;
        let mut y = Vec::with_capacity(x.len());
        for sequence in x.chunks_exact(length * width) {
            for (row, places) in self.slices.runs(0..length) {
                let tokens = &sequence[row * width..];
                let positions = &positions[places.start * width..places.end * width];
                y.extend(tokens.iter().zip(positions).map(|(token, position)| token + position));
            }
        }
        Ok((y, dims.into()))
    }

    fn input_gradient(&self, _x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        Ok(dy.to_vec())
    }

    /// Adds the gradients of all sequences, in order.
    fn weight_gradients(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<()> {
        self.positions.add_gradient(|sum| {
            let [_, length, width] = dims else { return };
            for dy in dy.chunks_exact(length * width) {
                for (row, places) in self.slices.runs(0..*length) {
                    let here = &dy[row * width..(row + places.len()) * width];
                    add(&mut sum[places.start * width..], here);
                }
            }
        })
    }
}

/// Adds `x` to the first elements of `sum`.
fn add(sum: &mut [f32], x: &[f32]) {
    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
}
