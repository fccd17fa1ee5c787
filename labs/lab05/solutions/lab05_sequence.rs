//! lab05-sequence · The MLP, its positions divided, too

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
    let h = gather(comm, x)?.matmul(&slices.a)?;
    // All rows, and one rank's summand of each.
    let z = gelu(&h)?.matmul(&slices.b)?;
    Ok((scatter(comm, &z)?, vec![x.clone(), h]))
}

/// From `kept` and the gradient of this rank's rows of Z: those of its rows of X and its slices.
pub fn backward(
    comm: &Comm,
    slices: &Slices,
    kept: Vec<Tensor>,
    dz: &Tensor,
) -> Result<(Tensor, Slices)> {
    let (x, h) = (&kept[0], &kept[1]);
    let dz = gather(comm, dz)?;
    let dh = gelu_backward(h, &dz.matmul(&slices.b.t()?)?)?;
    let dx = scatter(comm, &dh.matmul(&slices.a.t()?)?)?;
    // Every row has met this rank's slices, so their gradients need all rows: X once more, and
    // gelu(h) from h.
    let a = gather(comm, x)?.t()?.matmul(&dh)?;
    let b = gelu(h)?.t()?.matmul(&dz)?;
    Ok((dx, Slices { a, b }))
}
