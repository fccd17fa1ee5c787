//! The keys and values of earlier positions, so that a new token computes only its own.

use super::graph::read;
use super::math::{softmax, vectorized};
use super::matmul::{Matrix, Write, matmul};
use candle_core::{Device, Result, Tensor, bail};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The keys and values of a rank's layers and heads, for several sequences of the same length. Each
/// forward pass appends its positions.
pub struct KvCache {
    sizes: Sizes,
    /// The number of the first layer.
    first: usize,
    layers: Vec<Mutex<Layer>>,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    sequences: usize,
    kv_heads: usize,
    head: usize,
    /// Positions that the cache can hold.
    capacity: usize,
}

impl Sizes {
    /// The offset of one head of one sequence: [capacity, head] from there on.
    fn start(&self, sequence: usize, kv_head: usize) -> usize {
        (sequence * self.kv_heads + kv_head) * self.capacity * self.head
    }
}

#[derive(Default)]
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Positions that are here.
    seen: usize,
}

impl std::fmt::Debug for KvCache {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "KvCache({:?}, {} positions seen)", self.sizes, self.seen())
    }
}

impl KvCache {
    /// An empty cache of `layers`, with room for `capacity` positions of each of `sequences`
    /// sequences.
    pub fn new(
        layers: Range<usize>,
        sequences: usize,
        kv_heads: usize,
        head: usize,
        capacity: usize,
    ) -> KvCache {
        let sizes = Sizes { sequences, kv_heads, head, capacity };
        let numel = sequences * kv_heads * capacity * head;
        let layer = || Layer { keys: vec![0.0; numel], values: vec![0.0; numel], seen: 0 };
        KvCache {
            sizes,
            first: layers.start,
            layers: layers.map(|_| Mutex::new(layer())).collect(),
        }
    }

    /// Positions that every layer holds: those of all complete forward passes.
    pub fn seen(&self) -> usize {
        self.layers.iter().map(|layer| locked(layer).seen).min().unwrap_or(0)
    }

    /// Positions that fit.
    pub fn capacity(&self) -> usize {
        self.sizes.capacity
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        let Sizes { sequences, kv_heads, head, capacity } = self.sizes;
        2 * size_of::<f32>() * self.layers.len() * sequences * kv_heads * capacity * head
    }

    /// Forgets all positions.
    pub fn clear(&self) {
        for layer in &self.layers {
            locked(layer).seen = 0;
        }
    }

    /// The number of the first new position in `layer`.
    ///
    /// # Errors
    /// If the cache is for other layers.
    pub fn next(&self, layer: usize) -> Result<usize> {
        Ok(self.layer(layer)?.seen)
    }

    fn layer(&self, number: usize) -> Result<MutexGuard<'_, Layer>> {
        match number.checked_sub(self.first).and_then(|i| self.layers.get(i)) {
            Some(layer) => Ok(locked(layer)),
            None => bail!(
                "this cache is for layers {:?}, not {number}",
                self.first..self.first + self.layers.len()
            ),
        }
    }

    /// Appends the keys and values in `qkv` [sequences, new, (heads + 2 · kv_heads) · head] to
    /// `layer`, and lets the new queries attend to all positions up to their own: [sequences, new,
    /// heads · head]. For passes without a backward pass.
    ///
    /// # Errors
    /// If the cache is for other layers, sequences or heads, or has no room left.
    pub fn attend(&self, layer: usize, qkv: &Tensor, heads: usize) -> Result<Tensor> {
        let Sizes { sequences, kv_heads, head, capacity } = self.sizes;
        let width = heads * head;
        let row = (heads + 2 * kv_heads) * head;
        let (found, new, columns) = qkv.dims3()?;
        if (found, columns) != (sequences, row) {
            bail!(
                "this cache is for {sequences} sequences and rows of {row} numbers, not {:?}",
                qkv.dims()
            );
        }
        let mut layer = self.layer(layer)?;
        if layer.seen + new > capacity {
            bail!("{} positions and {new} more do not fit into a cache of {capacity}", layer.seen);
        }
        let y = read(qkv, |qkv| {
            for (s, rows) in qkv.chunks_exact((new * row).max(1)).enumerate() {
                layer.append(self.sizes, s, rows, width);
            }
            let mut y = vec![0.0; sequences * new * width];
            for (s, y) in y.chunks_exact_mut((new * width).max(1)).enumerate() {
                let queries = &qkv[s * new * row..][..new * row];
                for h in 0..heads {
                    layer.head(self.sizes, (s, h, heads), queries, new, y);
                }
            }
            Ok(y)
        })?;
        layer.seen += new;
        Tensor::from_vec(y, (sequences, new, width), &Device::Cpu)
    }
}

impl Layer {
    /// Writes one sequence's new keys and values after those that are here. They begin at column
    /// `width` of `rows`.
    fn append(&mut self, sizes: Sizes, sequence: usize, rows: &[f32], width: usize) {
        let Sizes { kv_heads, head, .. } = sizes;
        for (i, row) in rows.chunks_exact(width + 2 * kv_heads * head).enumerate() {
            let (keys, values) = row[width..].split_at(kv_heads * head);
            for kv in 0..kv_heads {
                let at = sizes.start(sequence, kv) + (self.seen + i) * head;
                self.keys[at..at + head].copy_from_slice(&keys[kv * head..][..head]);
                self.values[at..at + head].copy_from_slice(&values[kv * head..][..head]);
            }
        }
    }

    /// Attention of one query head of one sequence over its `seen` earlier and `new` positions.
    fn head(
        &self,
        sizes: Sizes,
        (s, h, heads): (usize, usize, usize),
        qkv: &[f32],
        new: usize,
        y: &mut [f32],
    ) {
        let Sizes { kv_heads, head, .. } = sizes;
        let row = (heads + 2 * kv_heads) * head;
        let all = self.seen + new;
        let start = sizes.start(s, h / (heads / kv_heads));
        let keys = Matrix::new(&self.keys[start..], all, head);
        let values = Matrix::new(&self.values[start..], all, head);
        let queries = Matrix::strided(&qkv[h * head..], new, head, row);
        let mut p = vec![0.0; new * all];
        matmul(&mut p, all, Write::Replace, queries, keys.t());
        vectorized!((&mut p[..], all, self.seen, 1.0 / (head as f32).sqrt()), causal_softmax,);
        matmul(
            &mut y[h * head..],
            heads * head,
            Write::Replace,
            Matrix::new(&p, new, all),
            values,
        );
    }
}

/// Turns rows of `all` scores into probabilities. Row i sees the first `seen + i + 1` positions.
#[inline(always)]
fn causal_softmax((scores, all, seen, scale): (&mut [f32], usize, usize, f32)) {
    for (i, row) in scores.chunks_exact_mut(all).enumerate() {
        let (seen, future) = row.split_at_mut(seen + i + 1);
        softmax(seen, scale);
        future.fill(0.0);
    }
}

fn locked(layer: &Mutex<Layer>) -> MutexGuard<'_, Layer> {
    layer.lock().unwrap_or_else(PoisonError::into_inner)
}
