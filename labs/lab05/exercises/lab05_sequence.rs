//! lab05-sequence · The MLP, its positions divided, too
//!
//! Under tensor parallelism, ranks divide the matrices of an MLP, and each rank still has all of X
//! and all of Z. Under sequence parallelism they divide X and Z as well, by rows: one row is one
//! position. You write both passes of that MLP.
//!
//! ```text
//! 4 positions, width 2, hidden 6, 2 ranks       rank 0    rank 1    shape
//!
//! forward    gets     x: rows of X              0 1       2 3       [2, 2]
//!                     a: columns of A           0 1 2     3 4 5     [2, 3]
//!                     b: rows of B              0 1 2     3 4 5     [3, 2]
//!            returns  rows of Z = gelu(X A) B   0 1       2 3       [2, 2]
//! backward   gets     dz: rows of dZ            0 1       2 3       [2, 2]
//!            returns  rows of dX                0 1       2 3       [2, 2]
//!                     columns of dA             0 1 2     3 4 5     [2, 3]
//!                     rows of dB                0 1 2     3 4 5     [3, 2]
//! ```
//!
//! dX is the gradient of X, and so on. `backward` gets the slices again, and as `kept` what
//! `forward` has returned after Z. Three things are counted:
//!
//! - Between the passes a rank keeps at most its rows of X and one tensor [all rows, hidden / t].
//! - `backward` computes no product of `forward` again.
//! - With that memory and those products, a rank sends as few bytes as possible.
//!
//! A matrix has `m.matmul(&other)?` and `m.t()?`, its transpose. A clone of a tensor takes no
//! memory: both share their numbers. Write `forward` first: the check looks at it first.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::tensor::{self, Device, Tensor};
use std::f64::consts::{PI, SQRT_2};

/// One rank's slices of the two matrices of Z = gelu(X A) B, on t ranks.
pub struct Slices {
    /// [width, hidden / t]: some columns of A.
    pub a: Tensor,
    /// [hidden / t, width]: the same rows of B.
    pub b: Tensor,
}

/// All ranks' rows, in rank order: an all-gather.
pub fn gather(comm: &Comm, mine: &Tensor) -> Result<Tensor> {
    let (rows, width) = mine.dims2()?;
    let mine = mine.flatten_all()?.to_vec1::<f32>()?;
    let mut all = vec![0.0; comm.size() * mine.len()];
    comm.all_gather(&mine, &mut all)?;
    let shape = (comm.size() * rows, width);
    Ok(Tensor::from_vec(all, shape, &Device::Cpu)?)
}

/// Adds up all ranks' `all`, and returns this rank's rows of the sum: a reduce-scatter.
pub fn scatter(comm: &Comm, all: &Tensor) -> Result<Tensor> {
    let (rows, width) = all.dims2()?;
    let all = all.flatten_all()?.to_vec1::<f32>()?;
    let mut mine = vec![0.0; all.len() / comm.size()];
    comm.reduce_scatter(&all, &mut mine, Reduce::Sum)?;
    let shape = (rows / comm.size(), width);
    Ok(Tensor::from_vec(mine, shape, &Device::Cpu)?)
}

/// The GPT's GELU: h times the probability that a standard normal number is below h.
pub fn gelu(h: &Tensor) -> Result<Tensor> {
    Ok(tensor::gelu(h.copy()?)?)
}

/// The gradient of `h`, from the gradient `dy` of gelu(h).
pub fn gelu_backward(h: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let below = (((h / SQRT_2)?.erf()? + 1.0)? / 2.0)?;
    let density = ((h.sqr()? / -2.0)?.exp()? / (2.0 * PI).sqrt())?;
    Ok((dy * (below + (h * density)?)?)?)
}

/// From this rank's rows of X [rows / t, width]: its rows of Z, and what the backward pass needs.
pub fn forward(comm: &Comm, slices: &Slices, x: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
    todo!(
        "rank {} of {}: x {:?}, a {:?}",
        comm.rank(),
        comm.size(),
        x.shape(),
        slices.a.shape()
    )
}

/// From `kept` and the gradient of this rank's rows of Z: those of its rows of X and its slices.
pub fn backward(
    comm: &Comm,
    slices: &Slices,
    kept: Vec<Tensor>,
    dz: &Tensor,
) -> Result<(Tensor, Slices)> {
    todo!(
        "rank {}: {} tensors kept, dz {:?}, b {:?}",
        comm.rank(),
        kept.len(),
        dz.shape(),
        slices.b.shape()
    )
}
