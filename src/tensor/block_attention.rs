//! Causal attention whose keys and values come block by block, from wherever they are: the online
//! softmax (Milakov and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135).
//!
//! A softmax needs the sum over all keys before it can weigh the first value. Here each query keeps
//! a running result instead: the largest score so far, the sum of e^(score - largest), and the
//! values weighted alike. A block that brings a larger score rescales what is there. The backward
//! pass needs no such care: with the final sum, each block's gradients are its own.
//!
//! Sequences that nobody shares are faster with [`causal_attention`](super::causal_attention()),
//! which says by how much.

use super::Slices;
use super::dropout::{Dropout, Mask};
use super::math::{dot, exp, exp_sum, max, vectorized};
use super::matmul::{Matrix, Write, matmul_in};
use super::stored::Precision;
use std::ops::Range;
use std::sync::Arc;

/// The positions of each sequence, beside 0, at which a new document begins. No position attends to
/// an earlier document. Without any, each sequence is one document.
pub type Documents = Arc<[Vec<usize>]>;

/// One layer's attention over the sequences of a batch, of which a rank has some queries.
pub struct BlockAttention {
    /// Query heads here, out of the whole layer's: dropout numbers its masks by the latter.
    pub heads: Range<usize>,
    /// Key and value heads here; each serves as many query heads.
    pub kv_heads: usize,
    /// The width of a head.
    pub head: usize,
    /// Tokens of a whole sequence.
    pub length: usize,
    pub documents: Documents,
    pub products: Precision,
    mask: Option<Mask>,
}

/// Rows of all sequences [S, rows, stride], of which an operation reads or writes a part.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub numbers: &'a [f32],
    /// Numbers from one row's start to the next row's.
    pub stride: usize,
    pub slices: &'a Slices,
}

/// What the queries have of the keys that came so far.
pub struct Running {
    /// The sum of e^(score - top) · value [sequences, rows, heads · head].
    pub out: Vec<f32>,
    /// The largest score of each query [S, H, rows].
    pub tops: Vec<f32>,
    /// The sum of e^(score - top) [S, H, rows].
    pub sums: Vec<f32>,
}

/// A tile of queries, and the keys of one block that they see.
struct Tile {
    /// The tile's rows among the rank's, and its first position.
    rows: Range<usize>,
    first: usize,
    /// The keys' rows in the block, and their first position.
    keys: Range<usize>,
    first_key: usize,
}

const TILE: usize = 64;

impl BlockAttention {
    /// Attention of `heads` query heads with `kv_heads` keys and values of width `head`, in
    /// sequences of `length` tokens.
    pub fn new(
        heads: Range<usize>,
        kv_heads: usize,
        head: usize,
        length: usize,
        products: Precision,
    ) -> BlockAttention {
        BlockAttention {
            heads,
            kv_heads,
            head,
            length,
            documents: Documents::default(),
            products,
            mask: None,
        }
    }

    /// The same, in which no position attends to an earlier document.
    pub fn with_documents(self, documents: &Documents) -> BlockAttention {
        BlockAttention { documents: documents.clone(), ..self }
    }

    /// The same, with the probabilities' dropout in `layer`.
    pub fn with_dropout(self, dropout: Option<&Dropout>, layer: &str) -> BlockAttention {
        BlockAttention { mask: dropout.map(|dropout| dropout.mask(layer)), ..self }
    }

    /// The width of a row of queries, and of the result.
    pub fn width(&self) -> usize {
        self.heads.len() * self.head
    }

    /// The width of a row of keys, and of a row of values. A block has the keys in front.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head
    }

    /// The queries, which are at the front of a rank's rows of queries, keys and values.
    pub fn queries<'a>(&self, qkv: &'a [f32], slices: &'a Slices) -> Rows<'a> {
        Rows {
            numbers: qkv,
            stride: self.width() + 2 * self.kv_width(),
            slices,
        }
    }

    /// The keys and values behind them, as ranks send them: [S, rows, keys | values].
    pub fn keys_and_values(&self, qkv: &[f32]) -> Vec<f32> {
        let width = self.width();
        let rows = qkv.chunks_exact(width + 2 * self.kv_width());
        rows.flat_map(|row| &row[width..]).copied().collect()
    }

    /// A block of keys and values that a rank has sent.
    pub fn block<'a>(&self, kv: &'a [f32], slices: &'a Slices) -> Rows<'a> {
        Rows { numbers: kv, stride: 2 * self.kv_width(), slices }
    }

    /// Puts the gradients of keys and values behind those of the queries.
    pub fn put_behind_queries(&self, dqkv: &mut [f32], dkv: &[f32]) {
        let width = self.width();
        let rows = dqkv.chunks_exact_mut(width + 2 * self.kv_width());
        for (row, dkv) in rows.zip(dkv.chunks_exact(2 * self.kv_width())) {
            row[width..].copy_from_slice(dkv);
        }
    }

    /// The running result of `rows` queries in each of `sequences`, which have seen no key.
    pub fn begin(&self, sequences: usize, rows: usize) -> Running {
        let each = sequences * self.heads.len() * rows;
        Running {
            out: vec![0.0; each * self.head],
            tops: vec![f32::NEG_INFINITY; each],
            sums: vec![0.0; each],
        }
    }

    /// Lets the queries attend to one more block of keys and values.
    pub fn attend(&self, running: &mut Running, q: Rows, kv: Rows) {
        let rows = q.slices.rows();
        let width = self.width();
        let mut scores = Vec::new();
        for (s, h) in self.all(rows, running.tops.len()) {
            let query = Strided::new(q, s, h * self.head);
            let [key, value] = self.keys(kv, s, h);
            let at = (s * self.heads.len() + h) * rows;
            let out = &mut running.out[s * rows * width + h * self.head..];
            for tile in self.tiles(s, q.slices, kv.slices) {
                let cols = tile.keys.len();
                scores.resize(tile.rows.len() * cols, 0.0);
                let q = query.rows(&tile.rows, self.head);
                let k = key.rows(&tile.keys, self.head);
                matmul_in(self.products, &mut scores, cols, Write::Replace, q, k.t());
                let seen = self.seen(s, &tile);
                let here = at + tile.rows.start..at + tile.rows.end;
                let out = &mut out[tile.rows.start * width..];
                vectorized!(
                    (
                        &mut scores[..],
                        &seen[..],
                        1.0 / (self.head as f32).sqrt(),
                        [&mut running.tops[here.clone()], &mut running.sums[here]],
                        (&mut *out, width, self.head),
                    ),
                    weigh,
                );
                self.drop(&mut scores, s, h, &tile);
                let p = Matrix::new(&scores, tile.rows.len(), cols);
                let v = value.rows(&tile.keys, self.head);
                matmul_in(self.products, out, width, Write::Add, p, v);
            }
        }
    }

    /// The result [S, rows, D], and the logarithm of each query's sum of e^score
    /// [S, H, rows].
    pub fn finish(&self, running: Running, rows: usize) -> (Vec<f32>, Vec<f32>) {
        let Running { mut out, tops, sums } = running;
        let width = self.width();
        for (s, h) in self.all(rows, tops.len()) {
            let at = (s * self.heads.len() + h) * rows;
            for row in 0..rows {
                let start = (s * rows + row) * width + h * self.head;
                let share = 1.0 / sums[at + row];
                out[start..start + self.head].iter_mut().for_each(|x| *x *= share);
            }
        }
        let log_sums = tops.iter().zip(&sums).map(|(top, sum)| top + sum.ln()).collect();
        (out, log_sums)
    }

    /// For each query, the product of its result and the result's gradient: what its probabilities'
    /// gradients have in common [S, H, rows].
    pub fn means(&self, y: &[f32], dy: &[f32], rows: usize) -> Vec<f32> {
        let width = self.width();
        let each = y.len() / self.head.max(1);
        let mut means = vec![0.0; each];
        for (s, h) in self.all(rows, each) {
            let at = (s * self.heads.len() + h) * rows;
            for row in 0..rows {
                let here = (s * rows + row) * width + h * self.head..;
                means[at + row] = dot(&y[here.clone()][..self.head], &dy[here][..self.head]);
            }
        }
        means
    }

    /// Adds the gradients that come from one block: those of the queries to `dq`, whose rows are
    /// as those of `q`, and those of the block's keys and values to `dkv`, as those of `kv`. With P
    /// the probabilities, D their dropout mask and m the `means`: `dV = (PD)ᵀ dY`,
    /// `dP = (dY Vᵀ) D`, `dS = P (dP - m) · scale`, `dQ = dS K`, `dK = dSᵀ Q`.
    pub fn gradients(
        &self,
        (q, kv): (Rows, Rows),
        dy: &[f32],
        (log_sums, means): (&[f32], &[f32]),
        (dq, dkv): (&mut [f32], &mut [f32]),
    ) {
        let rows = q.slices.rows();
        let keys = kv.slices.rows();
        let dy = Rows { numbers: dy, stride: self.width(), slices: q.slices };
        let mut p = Vec::new();
        let mut ds = Vec::new();
        let products = self.products;
        for (s, h) in self.all(rows, log_sums.len()) {
            let query = Strided::new(q, s, h * self.head);
            let dy = Strided::new(dy, s, h * self.head);
            let [key, value] = self.keys(kv, s, h);
            let at = (s * self.heads.len() + h) * rows;
            let of_key = self.key(h);
            for tile in self.tiles(s, q.slices, kv.slices) {
                let cols = tile.keys.len();
                let n = tile.rows.len();
                p.resize(n * cols, 0.0);
                ds.resize(n * cols, 0.0);
                let q_rows = query.rows(&tile.rows, self.head);
                let dy_rows = dy.rows(&tile.rows, self.head);
                let k = key.rows(&tile.keys, self.head);
                let v = value.rows(&tile.keys, self.head);
                matmul_in(products, &mut p, cols, Write::Replace, q_rows, k.t());
                matmul_in(products, &mut ds, cols, Write::Replace, dy_rows, v.t());
                self.drop(&mut ds, s, h, &tile);
                let seen = self.seen(s, &tile);
                let here = at + tile.rows.start..at + tile.rows.end;
                let scale = 1.0 / (self.head as f32).sqrt();
                let known = (&log_sums[here.clone()], &means[here], scale);
                vectorized!((&mut p[..], &mut ds[..], &seen[..], known), weigh_gradient,);
                self.drop(&mut p, s, h, &tile);

                let p = Matrix::new(&p, n, cols);
                let ds = Matrix::new(&ds, n, cols);
                let of_dq = (s * rows + tile.rows.start) * q.stride + h * self.head;
                let of_dk = (s * keys + tile.keys.start) * kv.stride + of_key;
                let of_dv = of_dk + self.kv_width();
                matmul_in(products, &mut dq[of_dq..], q.stride, Write::Add, ds, k);
                matmul_in(products, &mut dkv[of_dk..], kv.stride, Write::Add, ds.t(), q_rows);
                matmul_in(products, &mut dkv[of_dv..], kv.stride, Write::Add, p.t(), dy_rows);
            }
        }
    }

    /// All sequences and heads, where each of them has `rows` of `all` numbers.
    fn all(&self, rows: usize, all: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let heads = self.heads.len();
        (0..all / rows.max(1)).map(move |i| (i / heads, i % heads))
    }

    /// The offset of query head `h`'s key in a row of keys.
    fn key(&self, h: usize) -> usize {
        h / (self.heads.len() / self.kv_heads) * self.head
    }

    /// The keys and the values of one head.
    fn keys<'a>(&self, kv: Rows<'a>, s: usize, h: usize) -> [Strided<'a>; 2] {
        let key = self.key(h);
        [key, key + self.kv_width()].map(|offset| Strided::new(kv, s, offset))
    }

    /// Tiles of queries with the keys that at least one of them sees.
    fn tiles(&self, s: usize, queries: &Slices, keys: &Slices) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for (row, positions) in queries.runs(0..queries.rows()) {
            for start in (0..positions.len()).step_by(TILE) {
                let end = positions.len().min(start + TILE);
                let first = positions.start + start;
                let last = positions.start + end - 1;
                for (key, run) in keys.runs(0..keys.rows()) {
                    let seen = run.start.max(self.document(s, first))..run.end.min(last + 1);
                    if !seen.is_empty() {
                        let offset = key + seen.start - run.start;
                        tiles.push(Tile {
                            rows: row + start..row + end,
                            first,
                            keys: offset..offset + seen.len(),
                            first_key: seen.start,
                        });
                    }
                }
            }
        }
        tiles
    }

    /// The first position of the document that has `position`.
    fn document(&self, s: usize, position: usize) -> usize {
        let starts = self.documents.get(s).map_or(&[][..], Vec::as_slice);
        let before = starts.partition_point(|&start| start <= position);
        if before == 0 { 0 } else { starts[before - 1] }
    }

    /// The columns of a tile that each of its rows sees.
    fn seen(&self, s: usize, tile: &Tile) -> Vec<Range<usize>> {
        let of_row = |position: usize| {
            let from = self.document(s, position).saturating_sub(tile.first_key);
            let to = (position + 1).saturating_sub(tile.first_key).min(tile.keys.len());
            from.min(to)..to
        };
        (tile.first..tile.first + tile.rows.len()).map(of_row).collect()
    }

    /// Multiplies a tile's matrix by its dropout mask.
    fn drop(&self, matrix: &mut [f32], s: usize, h: usize, tile: &Tile) {
        let Some(mask) = &self.mask else { return };
        let t = self.length;
        for (i, row) in matrix.chunks_exact_mut(tile.keys.len()).enumerate() {
            let row_of_mask = ((self.heads.start + h) * t + tile.first + i) * t + tile.first_key;
            for (j, x) in row.iter_mut().enumerate() {
                if *x != 0.0 {
                    *x *= mask.factor(s, row_of_mask + j);
                }
            }
        }
    }
}

/// One part of one sequence's rows.
#[derive(Clone, Copy)]
struct Strided<'a> {
    numbers: &'a [f32],
    stride: usize,
}

impl<'a> Strided<'a> {
    fn new(all: Rows<'a>, s: usize, offset: usize) -> Strided<'a> {
        let start = s * all.slices.rows() * all.stride + offset;
        Strided { numbers: &all.numbers[start..], stride: all.stride }
    }

    fn rows(&self, rows: &Range<usize>, width: usize) -> Matrix<'a> {
        Matrix::strided(&self.numbers[rows.start * self.stride..], rows.len(), width, self.stride)
    }
}

type Weighing<'a> = (
    &'a mut [f32],
    &'a [Range<usize>],
    f32,
    [&'a mut [f32]; 2],
    (&'a mut [f32], usize, usize),
);

/// Turns a tile's scores into weights e^(score - top), and rescales what the queries have.
#[inline(always)]
fn weigh((scores, seen, scale, [tops, sums], (out, stride, head)): Weighing) {
    let cols = scores.len() / seen.len();
    let rows = scores.chunks_exact_mut(cols).zip(seen).zip(tops).zip(sums);
    for (i, (((row, seen), top), sum)) in rows.enumerate() {
        row[..seen.start].fill(0.0);
        row[seen.end..].fill(0.0);
        let row = &mut row[seen.clone()];
        if row.is_empty() {
            continue;
        }
        row.iter_mut().for_each(|score| *score *= scale);
        let old = *top;
        *top = old.max(max(row));
        let factor = exp(old - *top);
        *sum = *sum * factor + exp_sum(row, *top);
        out[i * stride..][..head].iter_mut().for_each(|x| *x *= factor);
    }
}

type WeighingGradient<'a> =
    (&'a mut [f32], &'a mut [f32], &'a [Range<usize>], (&'a [f32], &'a [f32], f32));

/// Turns a tile's scores into probabilities, and their gradient into the scores' gradient.
#[inline(always)]
fn weigh_gradient((scores, dp, seen, (log_sums, means, scale)): WeighingGradient) {
    let cols = scores.len() / seen.len();
    let rows = scores.chunks_exact_mut(cols).zip(dp.chunks_exact_mut(cols));
    for ((p, dp), (seen, (log_sum, mean))) in rows.zip(seen.iter().zip(log_sums.iter().zip(means)))
    {
        for row in [&mut *p, &mut *dp] {
            row[..seen.start].fill(0.0);
            row[seen.end..].fill(0.0);
        }
        let p = &mut p[seen.clone()];
        p.iter_mut().for_each(|p| *p = exp(*p * scale - log_sum));
        let dp = &mut dp[seen.clone()];
        dp.iter_mut().zip(&*p).for_each(|(dp, p)| *dp = p * (*dp - mean) * scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later block whose scores are far lower leaves the largest score as it is: relative to its
    /// own, the earlier sum would be infinite.
    #[test]
    fn a_block_of_far_lower_scores_changes_nothing() {
        let attention = BlockAttention::new(0..1, 1, 1, 4, Precision::F32);
        let queries = Slices::one(2..4);
        let q = Rows { numbers: &[1.0, 1.0], stride: 1, slices: &queries };
        let after = |blocks: &[(Range<usize>, &[f32])]| {
            let mut running = attention.begin(1, 2);
            for (positions, numbers) in blocks {
                let slices = Slices::one(positions.clone());
                attention.attend(&mut running, q, Rows { numbers, stride: 2, slices: &slices });
            }
            attention.finish(running, 2)
        };
        // Keys of 90 and of 0, each beside its value.
        let first = [90.0, 1.0, 90.0, 3.0];
        let both = after(&[(0..2, &first), (2..4, &[0.0, 7.0, 0.0, 7.0])]);
        assert_eq!(both, after(&[(0..2, &first)]));
        assert_eq!(both, (vec![2.0; 2], vec![90.0 + 2f32.ln(); 2]));
    }
}
