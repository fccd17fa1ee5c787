//! lab05-attention · Attention by heads
//!
//! Ranks share attention by heads: a head needs all of X, and no number of any other head. You write both passes.
//!
//! - All ranks have the same X, and the same gradient dZ of the result.
//! - Rank 0 has the first heads, and so on. If the ranks do not divide the heads, the first ranks have one more than the
//!   others. With more ranks than heads, the last ranks have none.
//! - As few bytes as possible are sent.
//!
//! ```text
//! 4 heads on 3 ranks                      rank 0         rank 1     rank 2
//!
//! gets      X, dZ, all parameters         whole          whole      whole
//! its heads                               0, 1           2          3
//! returns   Z                             whole          whole      whole
//!           gradient of X, of out_bias    whole          whole      whole
//!           gradients of its heads        [0, 1]         [2]        [3]
//! ```
//!
//! A matrix has `m.matmul(&other)?`, `m.t()?`, `m.narrow(1, first, count)?` (some columns; with 0 for 1, some rows),
//! `m.zeros_like()?`, `m.broadcast_add(&bias)?` and `m.sum(0)?` (the sum of its rows); `(&m + &other)?` adds. Write Z first, and
//! return `None` for the gradients: the check looks at Z first.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::tensor::Tensor;

/// Z = [head 0, head 1, ..] out + out_bias. Head h computes with columns h x d to (h + 1) x d of X q, X k and X v, and its
/// result meets the same rows of `out`. In a real training no rank holds all of it. Here all ranks do, and each takes its heads.
pub struct Attention {
    pub heads: usize,
    /// [width, heads x d], all three.
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    /// [heads x d, width]
    pub out: Tensor,
    /// [width]
    pub out_bias: Tensor,
}

/// The gradients of one head's columns of q, k and v, and of its rows of `out`.
pub struct Head {
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    pub out: Tensor,
}

/// The loss's gradients: of the whole X, of each of this rank's heads in order, and of the whole out_bias.
pub struct Gradients {
    pub x: Tensor,
    pub heads: Vec<Head>,
    pub out_bias: Tensor,
}

/// `x` of all ranks combined, on every rank.
pub fn all_reduce(comm: &Comm, x: &Tensor, how: Reduce) -> Result<Tensor> {
    let mut numbers = x.flatten_all()?.to_vec1::<f64>()?;
    comm.all_reduce(&mut numbers, how)?;
    Ok(Tensor::from_vec(numbers, x.shape(), x.device())?)
}

/// One head: what each token gets, and how much of it from each other token (its probabilities). No token is masked.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
    let scores = (q.matmul(&k.t()?)? / (q.dim(1)? as f64).sqrt())?.exp()?;
    let p = scores.broadcast_div(&scores.sum_keepdim(1)?)?;
    Ok((p.matmul(v)?, p))
}

/// The gradients of a head's q, k and v, from the gradient of its result.
pub fn attend_backward([q, k, v]: [&Tensor; 3], p: &Tensor, dy: &Tensor) -> Result<[Tensor; 3]> {
    let dp = dy.matmul(&v.t()?)?;
    let rest = dp.broadcast_sub(&(&dp * p)?.sum_keepdim(1)?)?;
    let scores = ((p * rest)? / (q.dim(1)? as f64).sqrt())?;
    Ok([
        scores.matmul(k)?,
        scores.t()?.matmul(q)?,
        p.t()?.matmul(dy)?,
    ])
}

/// Z, and the gradients that follow from `dz`.
pub fn attention(
    comm: &Comm,
    attention: &Attention,
    x: &Tensor,
    dz: &Tensor,
) -> Result<(Tensor, Option<Gradients>)> {
    todo!(
        "rank {} of {}: its part of {} heads, X {:?}, dZ {:?}",
        comm.rank(),
        comm.size(),
        attention.heads,
        x.shape(),
        dz.shape()
    )
}
