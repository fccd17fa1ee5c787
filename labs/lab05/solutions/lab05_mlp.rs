//! lab05-mlp · An MLP on several ranks

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
    let first = comm.rank() * slice;
    let a = mlp.a.narrow(1, first, slice)?;
    let a_bias = mlp.a_bias.narrow(0, first, slice)?;
    let b = mlp.b.narrow(0, first, slice)?;

    let h = x.matmul(&a)?.broadcast_add(&a_bias)?;
    let y = h.gelu_erf()?;
    // Megatron's g: each rank has one summand of Z. The bias is added once, to the sum.
    let z = all_reduce(comm, &y.matmul(&b)?, Reduce::Sum)?.broadcast_add(&mlp.b_bias)?;

    let dh = (dz.matmul(&b.t()?)? * gelu_slope(&h)?)?;
    // Megatron's f: X went into all ranks' columns, so each rank has one summand of its gradient.
    let dx = all_reduce(comm, &dh.matmul(&a.t()?)?, Reduce::Sum)?;
    let da = x.t()?.matmul(&dh)?;
    let db = y.t()?.matmul(dz)?;
    let gradients = Gradients {
        x: dx,
        a: da,
        a_bias: dh.sum(0)?,
        b: db,
        b_bias: dz.sum(0)?,
    };
    Ok((z, Some(gradients)))
}
