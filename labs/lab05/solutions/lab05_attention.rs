//! lab05-attention · Attention by heads

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
    let each = attention.heads / comm.size();
    let more = attention.heads % comm.size();
    let first = comm.rank() * each + comm.rank().min(more);
    let mine = first..first + each + usize::from(comm.rank() < more);
    let d = attention.q.dim(1)? / attention.heads;

    // This rank's summands. Without heads they are 0, and the rank still takes part in both all-reduces.
    let mut z = x.zeros_like()?;
    let mut dx = x.zeros_like()?;
    let mut heads = Vec::new();
    for head in mine {
        let [q, k, v] =
            [&attention.q, &attention.k, &attention.v].map(|m| m.narrow(1, head * d, d));
        let (q, k, v) = (q?, k?, v?);
        let out = attention.out.narrow(0, head * d, d)?;
        let [xq, xk, xv] = [x.matmul(&q)?, x.matmul(&k)?, x.matmul(&v)?];
        let (y, p) = attend(&xq, &xk, &xv)?;
        z = (z + y.matmul(&out)?)?;

        let dy = dz.matmul(&out.t()?)?;
        let [dq, dk, dv] = attend_backward([&xq, &xk, &xv], &p, &dy)?;
        // X goes into q, k and v, so its gradient has three parts on each rank already.
        dx = (((dx + dq.matmul(&q.t()?)?)? + dk.matmul(&k.t()?)?)? + dv.matmul(&v.t()?)?)?;
        heads.push(Head {
            q: x.t()?.matmul(&dq)?,
            k: x.t()?.matmul(&dk)?,
            v: x.t()?.matmul(&dv)?,
            out: y.t()?.matmul(dz)?,
        });
    }
    // Megatron's g, and the bias once. Then f: X went into all ranks' heads.
    let z = all_reduce(comm, &z, Reduce::Sum)?.broadcast_add(&attention.out_bias)?;
    let dx = all_reduce(comm, &dx, Reduce::Sum)?;
    let gradients = Gradients {
        x: dx,
        heads,
        out_bias: dz.sum(0)?,
    };
    Ok((z, Some(gradients)))
}
