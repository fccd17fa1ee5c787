//! Rotary position embedding: positions enter as rotations of queries and keys (Su et al.,
//! arXiv 2104.09864). The product of a query and a key then depends only on the distance of their
//! positions.
//!
//! Number i of a head's first half and number i of its second half are a pair, as Hugging Face's
//! weights want it. Meta's own files, and GGUF, pair neighbours.

use super::Slices;
use super::math::vectorized;
use super::operation::{Operand, TensorOp, consume, rows};
use candle_core::{Result, Shape, bail};
use std::sync::{Arc, Mutex, PoisonError};

/// The rotations of all positions, which all layers of a model share.
pub struct Rotations {
    /// Radians per position, of each pair.
    frequencies: Vec<f64>,
    table: Mutex<Arc<Table>>,
}

/// Cosines and sines by position and pair.
#[derive(Default)]
struct Table {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rotations {
    /// Rotations by these frequencies, in radians per position.
    pub fn new(frequencies: Vec<f64>) -> Arc<Rotations> {
        Arc::new(Rotations { frequencies, table: Mutex::default() })
    }

    /// The table for at least so many positions. It is computed when they are first needed: a model
    /// may be made for far longer sequences than it gets.
    fn up_to(&self, positions: usize) -> Arc<Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.cos.len() < positions * self.frequencies.len() {
            let positions = positions.next_power_of_two();
            let angle = |position: usize| {
                self.frequencies.iter().map(move |frequency| position as f64 * frequency)
            };
            let all = (0..positions).flat_map(angle);
            let (cos, sin) = all.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip();
            *table = Arc::new(Table { cos, sin });
        }
        table.clone()
    }
}

/// Turns the first `heads` heads in each row of `x` [S, L, D]: the queries and the
/// keys in front of the values. Every sequence's rows have the positions of `slices`.
///
/// Frees the memory of `x`, which no backward pass needs.
///
/// # Errors
/// If `x` does not have three dimensions, or its rows are narrower than the heads.
pub fn rope<X: Operand>(x: X, rotations: &Rotations, heads: usize, slices: &Slices) -> Result<X> {
    let &[_, length, _] = x.dims() else {
        bail!("RoPE takes [sequences, positions, numbers], not {:?}", x.dims())
    };
    let positions: Vec<usize> = slices.positions(length).collect();
    let table = rotations.up_to(positions.iter().max().map_or(0, |last| last + 1));
    consume(x, Rope { table, half: rotations.frequencies.len(), heads, positions })
}

struct Rope {
    table: Arc<Table>,
    half: usize,
    heads: usize,
    /// Of each row of a sequence.
    positions: Vec<usize>,
}

impl Rope {
    /// Turns `x` by each position's angles times `direction`, 1 or -1.
    fn turned(&self, x: &[f32], dims: &[usize], direction: f32) -> Result<Vec<f32>> {
        let (_, width) = rows(dims)?;
        if 2 * self.half * self.heads > width {
            bail!("rows of {width} numbers have no {} heads of {}", self.heads, 2 * self.half);
        }
        let mut y = x.to_vec();
        let length = dims[1];
        for (row, y) in y.chunks_exact_mut(width).enumerate() {
            let at = self.positions[row % length] * self.half;
            let cos = &self.table.cos[at..][..self.half];
            let sin = &self.table.sin[at..][..self.half];
            vectorized!((&mut y[..2 * self.half * self.heads], cos, sin, direction), turn,);
        }
        Ok(y)
    }
}

impl TensorOp for Rope {
    const NAME: &'static str = "RoPE";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        Ok((self.turned(x, dims, 1.0)?, dims.into()))
    }

    /// The gradient turns back.
    fn input_gradient(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        self.turned(dy, dims, -1.0)
    }
}

/// Turns all heads of one position.
#[inline(always)]
fn turn((heads, cos, sin, direction): (&mut [f32], &[f32], &[f32], f32)) {
    for head in heads.chunks_exact_mut(2 * cos.len()) {
        let (a, b) = head.split_at_mut(cos.len());
        for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(cos.iter().zip(sin)) {
            (*a, *b) = (*a * cos - *b * sin * direction, *b * cos + *a * sin * direction);
        }
    }
}
