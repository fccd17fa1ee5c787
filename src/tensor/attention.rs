//! Causal self-attention: every position attends to itself and to earlier positions. Query heads
//! may share key and value heads (grouped-query attention: Ainslie et al., arXiv 2305.13245).

use super::dropout::{Dropout, Mask};
use super::math::{causal_softmax, dot, exp, vectorized};
use super::matmul::{Matrix, Write, matmul_in, transposed};
use super::operation::{Operand, TensorOp, apply};
use super::stored::Precision;
use candle_core::{Result, Shape, bail};
use std::ops::Range;
use std::sync::OnceLock;

/// Attention over `qkv` [S, L, 3·D]: [S, L, D]. A row of `qkv`
/// holds queries, keys and values side by side, each for `heads` heads side by side.
///
/// The forward pass does not keep the matrix of probabilities (length x length for every head). It
/// keeps one number per row, from which the backward pass recomputes the matrix (Dao et al.,
/// arXiv 2205.14135). `first_head` is the position of this rank's first head in the whole layer. It
/// decides the heads' dropout masks. The products' factors are as `products` has them; the softmax
/// is f32.
///
/// [`BlockAttention`](super::BlockAttention) computes the same where keys come block by block. With
/// all of them in one block it takes 1.5 to 1.7 times as long at the GPT's shapes (forward 2.0 to
/// 2.6, backward 1.4 to 1.6), since it keeps a running result for each query; so both exist.
///
/// # Errors
/// If a row is not three times as wide as whole heads.
pub fn causal_attention<X: Operand>(
    qkv: &X,
    heads: usize,
    first_head: usize,
    dropout: Option<(&Dropout, &str)>,
    products: Precision,
) -> Result<X> {
    let mask = dropout.map(|(dropout, layer)| dropout.mask(layer));
    let attention = Attention::of(heads, heads, products);
    apply(qkv, Attention { first_head, mask, ..attention })
}

/// [`causal_attention`] in which each of `kv_heads` keys and values serves `heads / kv_heads` query
/// heads. A row of `qkv` holds `heads` queries, `kv_heads` keys and `kv_heads` values side by side.
///
/// # Errors
/// If the heads do not divide a row, or `kv_heads` does not divide `heads`.
pub fn grouped_attention<X: Operand>(
    qkv: &X,
    heads: usize,
    kv_heads: usize,
    products: Precision,
) -> Result<X> {
    apply(qkv, Attention::of(heads, kv_heads, products))
}

struct Attention {
    heads: usize,
    kv_heads: usize,
    first_head: usize,
    mask: Option<Mask>,
    products: Precision,
    /// The logarithm of the sum of e^score, for every sequence, head and row.
    log_sums: OnceLock<Vec<f32>>,
}

impl Attention {
    /// All heads of a layer, without dropout.
    fn of(heads: usize, kv_heads: usize, products: Precision) -> Attention {
        Attention {
            heads,
            kv_heads,
            first_head: 0,
            mask: None,
            products,
            log_sums: OnceLock::new(),
        }
    }
}

/// The sizes of one call.
#[derive(Clone, Copy)]
struct Sizes {
    sequences: usize,
    length: usize,
    /// Width of a row of qkv.
    row: usize,
    /// Width of all queries, and of the result.
    width: usize,
    /// Width of all keys, and of all values.
    kv_width: usize,
    /// Width of one head.
    head: usize,
    /// Query heads for each key and value head.
    group: usize,
}

impl Sizes {
    fn of(dims: &[usize], heads: usize, kv_heads: usize) -> Result<Sizes> {
        let all = heads + 2 * kv_heads;
        match *dims {
            [sequences, length, row]
                if length > 0 && row > 0 && row % all == 0 && heads.is_multiple_of(kv_heads) =>
            {
                let head = row / all;
                let width = heads * head;
                let kv_width = kv_heads * head;
                let group = heads / kv_heads;
                Ok(Sizes { sequences, length, row, width, kv_width, head, group })
            }
            _ if heads == kv_heads => {
                bail!(
                    "attention with {heads} heads takes [sequences, length, 3 x heads x width], not {dims:?}"
                )
            }
            _ => bail!(
                "attention with {heads} heads and {kv_heads} keys takes rows of a multiple of {all}, not {dims:?}"
            ),
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }

    /// The offset of sequence `s` in a tensor with rows of `row` numbers.
    fn sequence(&self, s: usize, row: usize) -> usize {
        s * self.length * row
    }

    /// Offsets in a row of qkv: of query head `h`, and of its key and value.
    fn parts(&self, h: usize) -> [usize; 3] {
        let kv = self.width + h / self.group * self.head;
        [h * self.head, kv, kv + self.kv_width]
    }

    /// The queries of one head of one sequence of qkv, their keys and their values: [length, head]
    /// each.
    fn of_head<'a>(&self, qkv: &'a [f32], s: usize, h: usize) -> [Matrix<'a>; 3] {
        let start = self.sequence(s, self.row);
        self.parts(h)
            .map(|part| Matrix::strided(&qkv[start + part..], self.length, self.head, self.row))
    }
}

/// A block of rows of the [length, length] matrix of scores. Row i belongs to position i, which
/// sees columns 0..=i.
struct Tile {
    rows: Range<usize>,
    /// Columns that at least one of the tile's rows sees.
    seen: Range<usize>,
    /// Rows that see at least one of the tile's positions.
    seeing: Range<usize>,
}

/// What one head's backward pass after the other uses again.
struct Scratch<'a> {
    /// The scores, then P, then PD: [t, t].
    p: &'a mut [f32],
    /// dY Vᵀ, then dP, then dS: [t, t].
    ds: &'a mut [f32],
    /// Kᵀ and Vᵀ: [head, t] each.
    kt: &'a mut [f32],
    vt: &'a mut [f32],
}

/// Splits the matrix's rows into tiles of 64. A product reads only the columns that its tile sees,
/// and so skips most of the future.
fn tiles(length: usize) -> impl Iterator<Item = Tile> {
    (0..length).step_by(TILE).map(move |start| {
        let end = length.min(start + TILE);
        Tile { rows: start..end, seen: 0..end, seeing: start..length }
    })
}

const TILE: usize = 64;

impl Attention {
    fn matmul(&self, c: &mut [f32], stride: usize, write: Write, a: Matrix, b: Matrix) {
        matmul_in(self.products, c, stride, write, a, b);
    }

    /// Multiplies the lower triangle of one head's [length, length] matrix by its dropout mask.
    fn apply_mask(&self, matrix: &mut [f32], sizes: Sizes, s: usize, h: usize) {
        let Some(mask) = &self.mask else { return };
        let t = sizes.length;
        for (i, row) in matrix.chunks_exact_mut(t).enumerate() {
            for (j, x) in row[..=i].iter_mut().enumerate() {
                *x *= mask.factor(s, ((self.first_head + h) * t + i) * t + j);
            }
        }
    }
}

impl TensorOp for Attention {
    const NAME: &'static str = "attention";

    fn forward(&self, qkv: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let sizes = Sizes::of(dims, self.heads, self.kv_heads)?;
        let Sizes { sequences, length: t, width, head, .. } = sizes;
        let mut y = vec![0.0; sequences * t * width];
        let mut log_sums = vec![0.0; sequences * self.heads * t];
        let mut scratch = vec![0.0; t * t + head * t];
        let (p, kt) = scratch.split_at_mut(t * t);
        for s in 0..sequences {
            for h in 0..self.heads {
                let [q, k, v] = sizes.of_head(qkv, s, h); // [t, head] each
                let kt = transposed(k, kt); // [head, t]
                for Tile { rows, seen, .. } in tiles(t) {
                    // Scores [t, t] = Q [t, head] · Kᵀ [head, t].
                    self.matmul(
                        &mut p[rows.start * t..],
                        t,
                        Write::Replace,
                        q.rows(rows),
                        kt.cols(seen),
                    );
                }
                let first = (s * self.heads + h) * t;
                causal_softmax(p, &mut log_sums[first..first + t], 0, sizes.scale());
                self.apply_mask(p, sizes, s, h);
                // [t, head], in rows of y's width.
                let out = &mut y[sizes.sequence(s, width) + h * head..];
                for Tile { rows, seen, .. } in tiles(t) {
                    // Y [t, head] = P [t, t] · V [t, head].
                    let p = Matrix::new(p, t, t).rows(rows.clone()).cols(seen.clone());
                    let out = &mut out[rows.start * width..];
                    self.matmul(out, width, Write::Replace, p, v.rows(seen));
                }
            }
        }
        self.log_sums.set(log_sums).ok();
        Ok((y, (sequences, t, width).into()))
    }

    fn input_gradient(&self, qkv: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let sizes = Sizes::of(dims, self.heads, self.kv_heads)?;
        let mut dqkv = vec![0.0; qkv.len()];
        let square = sizes.length * sizes.length;
        let turned = sizes.head * sizes.length;
        let mut scratch = vec![0.0; 2 * (square + turned)];
        let (squares, turned_both) = scratch.split_at_mut(2 * square);
        let (p, ds) = squares.split_at_mut(square);
        let (kt, vt) = turned_both.split_at_mut(turned);
        let mut scratch = Scratch { p, ds, kt, vt };
        for s in 0..sizes.sequences {
            for h in 0..self.heads {
                self.head_backward(sizes, (s, h), qkv, dy, &mut dqkv, &mut scratch);
            }
        }
        Ok(dqkv)
    }
}

impl Attention {
    /// The backward pass of one head of one sequence. P is the probabilities, D their dropout mask:
    /// `dV = (PD)ᵀ dY`, `dP = (dY Vᵀ) D`, `dS = P (dP - rowsum(P dP)) · scale`, `dQ = dS K`,
    /// `dK = dSᵀ Q`.
    fn head_backward(
        &self,
        sizes: Sizes,
        (s, h): (usize, usize),
        qkv: &[f32],
        dy: &[f32],
        dqkv: &mut [f32],
        Scratch { p, ds, kt, vt }: &mut Scratch,
    ) {
        let Sizes { length: t, row, width, head, group, .. } = sizes;
        let [q, k, v] = sizes.of_head(qkv, s, h); // [t, head] each
        // [t, head]
        let dy = Matrix::strided(&dy[sizes.sequence(s, width) + h * head..], t, head, width);
        let log_sums = self.log_sums.get().map(Vec::as_slice).unwrap_or_default();
        let log_sums = &log_sums[(s * self.heads + h) * t..][..t]; // [t]

        let kt = transposed(k, kt); // [head, t]
        let vt = transposed(v, vt); // [head, t]
        for Tile { rows, seen, .. } in tiles(t) {
            let start = rows.start * t;
            self.matmul(
                &mut p[start..],
                t,
                Write::Replace,
                q.rows(rows.clone()),
                kt.cols(seen.clone()),
            ); // Q Kᵀ
            // dY Vᵀ
            self.matmul(&mut ds[start..], t, Write::Replace, dy.rows(rows), vt.cols(seen));
        }
        self.apply_mask(ds, sizes, s, h);
        vectorized!((&mut p[..], &mut ds[..], log_sums, sizes.scale()), causal_softmax_gradient,);
        self.apply_mask(p, sizes, s, h);

        let start = sizes.sequence(s, row);
        let p = Matrix::new(p, t, t);
        let ds = Matrix::new(ds, t, t);
        // The first query head of a group writes the gradients of its key and value, the others add
        // theirs.
        let shared = if h.is_multiple_of(group) {
            Write::Replace
        } else {
            Write::Add
        };
        for Tile { rows, seen, seeing } in tiles(t) {
            // Offsets of these rows of dQ, dK and dV in dqkv: [rows, head] each.
            let [dq, dk, dv] = sizes.parts(h).map(|part| start + rows.start * row + part);
            let mut put =
                |offset: usize, write, a, b| self.matmul(&mut dqkv[offset..], row, write, a, b);
            // [rows, seen] · [seen, head]
            put(dq, Write::Replace, ds.rows(rows.clone()).cols(seen.clone()), k.rows(seen));
            put(
                dk,
                shared,
                ds.rows(seeing.clone()).cols(rows.clone()).t(),
                q.rows(seeing.clone()),
            ); // [rows, seeing] · [seeing, head]
            // [rows, seeing] · [seeing, head]
            put(dv, shared, p.rows(seeing.clone()).cols(rows).t(), dy.rows(seeing));
        }
    }
}

/// Recomputes one head's probabilities from its scores, and turns the probabilities' gradient into
/// the scores' gradient.
#[inline(always)]
fn causal_softmax_gradient((scores, dp, log_sums, scale): (&mut [f32], &mut [f32], &[f32], f32)) {
    let t = log_sums.len();
    let rows = scores.chunks_exact_mut(t).zip(dp.chunks_exact_mut(t)).zip(log_sums);
    for (i, ((p, dp), log_sum)) in rows.enumerate() {
        p[i + 1..].fill(0.0);
        dp[i + 1..].fill(0.0);
        let p = &mut p[..=i];
        let dp = &mut dp[..=i];
        p.iter_mut().for_each(|p| *p = exp(*p * scale - log_sum));
        let mean = dot(p, dp);
        dp.iter_mut().zip(&*p).for_each(|(dp, p)| *dp = p * (*dp - mean) * scale);
    }
}
