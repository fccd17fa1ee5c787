//! lab12 · The long sequence
//!
//! What if one sequence is too long for a rank? Each rank holds some of its positions. Most layers
//! take one position at a time; attention needs the keys and values of all earlier ones. The
//! plainest way is `attention`: gather all of them, as Llama 3 did, and ask with one's own queries.
//!
//! Run `cargo run --bin lab12`: four ranks share every sequence, by three exchanges, and the checks
//! compare every gradient with one rank's. See packed documents mix: `--break documents`.

use anyhow::{Context, Result};
use candle_core::Result as Candle;
use candle_core::{CpuStorage, CustomOp1, D, Device, Error, Layout, Shape, Tensor, Var};
use candle_nn::ops::softmax;
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Uniform;
use shardlab::model::{Heads, Pass};
use shardlab::parallel::ContextParallel;
use shardlab::parallel::context::{Exchange, Slicing};
use shardlab::tensor;

// ANCHOR: heart
/// Causal attention of this rank's queries to all ranks' keys and values. Shapes: q, k, v and the
/// result [positions here, heads, head]. `place` has the position of each row, and the number of
/// its document: any order of positions and any documents work, since the mask asks for both.
fn attention([q, k, v]: [Tensor; 3], place: &[[i32; 2]], group: &Comm) -> Result<Tensor> {
    let k = k.apply_op1(Gather(group.clone()))?; // [all positions, heads, head], rank by rank
    let v = v.apply_op1(Gather(group.clone()))?;
    let mut all = vec![0; 2 * place.len() * group.size()];
    group.all_gather(place.as_flattened(), &mut all)?;

    // A query sees the keys of its own document, up to its own position.
    let sees = |query: &[i32; 2], key: &[i32]| query[0] >= key[0] && query[1] == key[1];
    let hidden = place.iter().flat_map(|query| {
        let keys = all.chunks(2);
        keys.map(move |key| if sees(query, key) { 0f32 } else { f32::NEG_INFINITY })
    });
    let shape = (1, place.len(), all.len() / 2);
    let hidden = Tensor::from_iter(hidden, q.device())?.reshape(shape)?;

    let by_head = |x: Tensor| x.transpose(0, 1)?.contiguous(); // [heads, positions, head]
    let root = (q.dim(D::Minus1)? as f64).sqrt();
    let scores = (by_head(q)?.matmul(&by_head(k)?.t()?.contiguous()?)? / root)?;
    let weights = softmax(&scores.broadcast_add(&hidden)?, D::Minus1)?;
    Ok(by_head(weights.matmul(&by_head(v)?)?)?)
}
// ANCHOR_END: heart

// ANCHOR: gather
/// Forward, every rank gets all ranks' rows. Backward, every rank has a gradient for all of them,
/// and each gets the sum of those for its own: a reduce-scatter.
struct Gather(Comm);

impl CustomOp1 for Gather {
    fn name(&self) -> &'static str {
        "all-gather over the context group"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Candle<(CpuStorage, Shape)> {
        let mine = &x.as_slice::<f32>()?[layout.start_offset()..][..layout.shape().elem_count()];
        let mut all = vec![0.0; mine.len() * self.0.size()];
        self.0.all_gather(mine, &mut all).map_err(Error::wrap)?;
        let (rows, heads, head) = layout.shape().dims3()?;
        Ok((CpuStorage::F32(all), (rows * self.0.size(), heads, head).into()))
    }

    fn bwd(&self, x: &Tensor, _all: &Tensor, d_all: &Tensor) -> Candle<Option<Tensor>> {
        let d_all = d_all.flatten_all()?.to_vec1::<f32>()?;
        let mut mine = vec![0.0; x.elem_count()];
        let sum = self.0.reduce_scatter(&d_all, &mut mine, Reduce::Sum);
        sum.map_err(Error::wrap)?;
        Ok(Some(Tensor::from_vec(mine, x.shape(), x.device())?))
    }
}
// ANCHOR_END: gather

const HEADS: usize = 2;
const HEAD: usize = 16;
/// The positions that each rank holds.
const ROWS: usize = 32;

/// Compares the attention above with the library's: three documents in one sequence, in zig-zag
/// order. Returns the result or the gradient of queries, keys and values, whichever is nearer to
/// its bound.
pub fn compare_attention(group: &Comm, seed: u64) -> Result<Beside> {
    let length = ROWS * group.size();
    let starts = [length / 3, length / 2 + 5];
    let slices = Slicing::ZigZag.slices(length, group.size(), group.rank());
    let document = |position: usize| starts.iter().filter(|&&start| start <= position).count();
    let place: Vec<[i32; 2]> = slices
        .positions(ROWS)
        .map(|position| [position as i32, document(position) as i32])
        .collect();
    // A row has the queries, keys and values of all heads, as the library's attention takes them.
    let numbers = |seed, width| {
        let samples = Uniform { seed, rank: group.rank(), batch: ROWS, width };
        Tensor::from_vec(samples.batch(0), (1, ROWS, width), &Device::Cpu)
    };
    let qkv = Var::from_tensor(&numbers(seed, 3 * HEADS * HEAD)?)?;
    let dy = numbers(seed + 1, HEADS * HEAD)?;

    let part = |i: usize| {
        let part = qkv.narrow(2, i * HEADS * HEAD, HEADS * HEAD)?;
        part.reshape((ROWS, HEADS, HEAD))
    };
    let y = attention([part(0)?, part(1)?, part(2)?], &place, group)?;
    let y = y.reshape((1, ROWS, HEADS * HEAD))?;

    let context = ContextParallel::new(group.clone(), Exchange::Gather, Slicing::ZigZag);
    let library = context.attention(length, &vec![starts.to_vec()].into());
    let heads = Heads { queries: 0..HEADS, kv: HEADS };
    let expected = tensor::node(&qkv, |qkv| {
        library.attend(qkv.clone(), &heads, &Pass::training(None), "lesson")
    })?;

    let [y, dqkv] = with_gradient(&qkv, &y, &dy)?;
    let [expected_y, expected_dqkv] = with_gradient(&qkv, &expected, &dy)?;
    let bounds = bounds(length);
    let of_y = Beside::of(group, &y, &expected_y, bounds[0])?;
    let of_gradient = Beside::of(group, &dqkv, &expected_dqkv, bounds[1])?;
    Ok(of_y.or_nearer(of_gradient))
}

/// The elements of `y`, and of its input's gradient for its own gradient `dy`.
fn with_gradient(x: &Var, y: &Tensor, dy: &Tensor) -> Result<[Vec<f32>; 2]> {
    let gradients = (y * dy)?.sum_all()?.backward()?;
    let dx = gradients.get(x).context("no gradient of the input")?;
    let elements = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    Ok([elements(y)?, elements(dx)?])
}

/// The most by which two orders of computing can change a result, and a gradient.
///
/// All inputs are at most 1. A score sums HEAD products, so it is off by HEAD roundings of at most
/// √HEAD, and a probability by e to that, and by the roundings of a sum over all keys (Higham,
/// Accuracy and Stability of Numerical Algorithms, section 3.1). A result is a mean of values, with
/// these weights. A gradient sums, over all positions, probabilities times sums of HEAD products.
fn bounds(length: usize) -> [f64; 2] {
    let unit = f64::from(f32::EPSILON) / 2.0;
    let head = HEAD as f64;
    let score = (head + 2.0) * head.sqrt();
    let probability = 2.0 * (score + length as f64 + 8.0) * unit;
    let of_y = 2.0 * probability;
    // dS = P (dP - mean) / √HEAD, with |dP| <= HEAD; a key has at most `length` queries.
    let of_gradient = 2.0 * (probability + 2.0 * head * unit) * 2.0 * head.sqrt() * length as f64;
    [of_y, of_gradient]
}
