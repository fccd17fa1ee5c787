//! lab05-attention · One key head, many query heads

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
    let group = slices.q.dim(1)? / slices.k.dim(1)?;
    let mut dx = x.zeros_like()?;
    let (mut dq, mut dk, mut dv, mut dout) = (vec![], vec![], vec![], vec![]);
    for key in 0..slices.k.dim(1)? / D {
        let wk = slices.k.narrow(1, key * D, D)?;
        let wv = slices.v.narrow(1, key * D, D)?;
        let (k, v) = (x.matmul(&wk)?, x.matmul(&wv)?);
        // All query heads of the group use k and v, so these gradients are sums over the group.
        let (mut sum_k, mut sum_v) = (k.zeros_like()?, v.zeros_like()?);
        for head in key * group..(key + 1) * group {
            let wq = slices.q.narrow(1, head * D, D)?;
            let out = slices.out.narrow(0, head * D, D)?;
            let q = x.matmul(&wq)?;
            let (y, p) = attend(&q, &k, &v)?;
            let [gq, gk, gv] = attend_backward([&q, &k, &v], &p, &dz.matmul(&out.t()?)?)?;
            sum_k = (sum_k + gk)?;
            sum_v = (sum_v + gv)?;
            dx = (dx + gq.matmul(&wq.t()?)?)?;
            dq.push(x.t()?.matmul(&gq)?);
            dout.push(y.t()?.matmul(dz)?);
        }
        dx = ((dx + sum_k.matmul(&wk.t()?)?)? + sum_v.matmul(&wv.t()?)?)?;
        dk.push(x.t()?.matmul(&sum_k)?);
        dv.push(x.t()?.matmul(&sum_v)?);
    }
    // Megatron's f: x went into all ranks' heads.
    let dx = all_reduce(comm, &dx)?;
    // The group may go on on other ranks. Those that hold the same key head add up their sums.
    let color = comm.rank() * key_heads / comm.size();
    let holders = comm.split(color as u64, comm.rank() as i64)?;
    let gradients = Slices {
        q: Tensor::cat(&dq, 1)?,
        k: all_reduce(&holders, &Tensor::cat(&dk, 1)?)?,
        v: all_reduce(&holders, &Tensor::cat(&dv, 1)?)?,
        out: Tensor::cat(&dout, 0)?,
    };
    Ok((dx, gradients))
}
