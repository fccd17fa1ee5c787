//! lab05-attention · One key head, many query heads
//!
//! In grouped-query attention several neighbouring query heads use one key head and one value head.
//! Ranks divide the query heads, and each rank holds the key and value heads that its query heads
//! use: some ranks may hold the same ones. The forward pass is given. You write the backward pass.
//!
//! ```text
//! 8 query heads, 2 key heads and 2 value heads, D = 3, on 4 ranks
//!
//!                      rank 0     rank 1     rank 2     rank 3      shape
//! gets     x, dz       whole      whole      whole      whole       [tokens, width]
//!          q           0 1        2 3        4 5        6 7         [width, 2 D]
//!          k, v        0          0          1          1           [width, D]
//!          out         0 1        2 3        4 5        6 7         [2 D, width]
//! returns  dx          whole      whole      whole      whole       [tokens, width]
//!          gradients   of what the rank holds, and of the same shapes
//! ```
//!
//! - Each gradient is the one that a single rank would compute, which has all heads.
//! - The number of ranks divides the query heads. It divides the key heads, or they divide it.
//! - Only gradients are sent that some rank needs and does not have.
//!
//! A matrix has `m.matmul(&other)?`, `m.t()?`, `m.zeros_like()?`, and `m.narrow(1, first, count)?`
//! for some columns (with 0 for 1: some rows). `Tensor::cat(&matrices, 1)?` puts matrices beside
//! each other, with 0 one below the other. `(&m + &other)?` adds. `comm.split(color, key)?` makes a
//! Comm of the ranks that give the same color, ordered by key.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::tensor::Tensor;

/// Columns of q, k and v for one head, and rows of `out`.
pub const D: usize = 3;

/// One rank's part, or the gradients of it: its heads side by side.
pub struct Slices {
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    pub out: Tensor,
}

/// `x` of all ranks added up, on every rank.
pub fn all_reduce(comm: &Comm, x: &Tensor) -> Result<Tensor> {
    let mut numbers = x.flatten_all()?.to_vec1::<f64>()?;
    comm.all_reduce(&mut numbers, Reduce::Sum)?;
    Ok(Tensor::from_vec(numbers, x.shape(), x.device())?)
}

/// One query head: what each token gets, and how much of it from each other token (its
/// probabilities). No token is masked.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
    let scores = (q.matmul(&k.t()?)? / (q.dim(1)? as f64).sqrt())?.exp()?;
    let p = scores.broadcast_div(&scores.sum_keepdim(1)?)?;
    Ok((p.matmul(v)?, p))
}

/// The gradients of `attend`'s q, k and v, from the gradient of its result.
pub fn attend_backward([q, k, v]: [&Tensor; 3], p: &Tensor, dy: &Tensor) -> Result<[Tensor; 3]> {
    let dp = dy.matmul(&v.t()?)?;
    let rest = dp.broadcast_sub(&(&dp * p)?.sum_keepdim(1)?)?;
    let scores = ((p * rest)? / (q.dim(1)? as f64).sqrt())?;
    Ok([scores.matmul(k)?, scores.t()?.matmul(q)?, p.t()?.matmul(dy)?])
}

/// Z: the sum of all heads' results, each times its rows of `out`.
pub fn forward(comm: &Comm, slices: &Slices, x: &Tensor) -> Result<Tensor> {
    // So many of this rank's query heads use one of its key heads.
    let group = slices.q.dim(1)? / slices.k.dim(1)?;
    let mut z = x.zeros_like()?;
    for head in 0..slices.q.dim(1)? / D {
        let q = x.matmul(&slices.q.narrow(1, head * D, D)?)?;
        let k = x.matmul(&slices.k.narrow(1, head / group * D, D)?)?;
        let v = x.matmul(&slices.v.narrow(1, head / group * D, D)?)?;
        let (y, _) = attend(&q, &k, &v)?;
        z = (z + y.matmul(&slices.out.narrow(0, head * D, D)?)?)?;
    }
    all_reduce(comm, &z)
}

/// The gradient of `x`, and those of this rank's slices, from the gradient `dz` of Z. The model has
/// `key_heads` key heads, and as many value heads.
pub fn backward(
    comm: &Comm,
    key_heads: usize,
    slices: &Slices,
    x: &Tensor,
    dz: &Tensor,
) -> Result<(Tensor, Slices)> {
    todo!(
        "rank {}: {} key heads in all, here q {:?}, x and dz {:?}",
        comm.rank(),
        key_heads,
        slices.q.shape(),
        (x.shape(), dz.shape())
    )
}
