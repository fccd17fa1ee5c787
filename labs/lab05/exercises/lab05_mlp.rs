//! lab05-mlp · An MLP on several ranks
//!
//! Each rank computes a slice of the MLP: some columns of A, and the same rows of B. GELU acts on each number alone, so it
//! needs no other rank's columns. A rank's columns of Y times its rows of B are one summand of Z.
//!
//! All ranks have the same X, and the same gradient dZ of the result. Each rank computes the gradients of its slices.
//! Megatron-LM needs one all-reduce in the forward pass, and one in the backward pass. Find out where they belong.
//!
//! A matrix has `m.matmul(&other)?`, `m.t()?`, `m.narrow(1, first, count)?` (some columns; with 0 for 1, some rows),
//! `m.broadcast_add(&bias)?`, `m.gelu_erf()?` and `m.sum(0)?` (the sum of its rows). `(&m * &other)?` multiplies two matrices
//! of one shape number by number. Write Z first, and return `None` for the gradients: the check looks at Z first.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::tensor::Tensor;
use std::f64::consts::TAU;

/// The MLP: Y = GELU(X·A + a_bias) and Z = Y·B + b_bias. In a real training no rank holds it whole. Here all ranks do, and
/// each takes its slices.
pub struct Mlp {
    /// [width, inner]
    pub a: Tensor,
    /// [inner]
    pub a_bias: Tensor,
    /// [inner, width]
    pub b: Tensor,
    /// [width]
    pub b_bias: Tensor,
}

/// The loss's gradients: of the whole X, of this rank's slices of A, a_bias and B, and of the whole b_bias.
pub struct Gradients {
    pub x: Tensor,
    pub a: Tensor,
    pub a_bias: Tensor,
    pub b: Tensor,
    pub b_bias: Tensor,
}

/// `x` of all ranks combined, on every rank.
pub fn all_reduce(comm: &Comm, x: &Tensor, how: Reduce) -> Result<Tensor> {
    let mut numbers = x.flatten_all()?.to_vec1::<f64>()?;
    comm.all_reduce(&mut numbers, how)?;
    Ok(Tensor::from_vec(numbers, x.shape(), x.device())?)
}

/// GELU's slope at each number of `h`.
pub fn gelu_slope(h: &Tensor) -> Result<Tensor> {
    let below = (((h / 2f64.sqrt())?.erf()? + 1.0)? / 2.0)?;
    let density = ((h.sqr()? / -2.0)?.exp()? / TAU.sqrt())?;
    Ok((below + (h * density)?)?)
}

/// Z, and the gradients that follow from `dz`. The number of ranks divides the inner width.
pub fn mlp(comm: &Comm, mlp: &Mlp, x: &Tensor, dz: &Tensor) -> Result<(Tensor, Option<Gradients>)> {
    let slice = mlp.a.dim(1)? / comm.size();
    todo!(
        "{slice} columns of A for rank {}, X of shape {:?}, dZ of shape {:?}",
        comm.rank(),
        x.shape(),
        dz.shape()
    )
}
