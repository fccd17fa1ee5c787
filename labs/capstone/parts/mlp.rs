//! `lab05-sequence`: the MLP of ranks that share its matrices and, outside of it, the positions.
//!
//! Both passes gather what ranks share by rows, and add up and scatter what every rank has a
//! summand of.

use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::tensor::{Activation, Device, Tensor, gelu};

/// The result's rows of this rank, and what the backward pass needs.
pub type Forward = fn(&Comm, &Tensor, &Tensor, &Tensor) -> Result<(Tensor, Vec<Tensor>)>;

/// The gradients of this rank's rows, of `a` and of `b`.
pub type Backward =
    fn(&Comm, &Tensor, &Tensor, Vec<Tensor>, &Tensor) -> Result<(Tensor, Tensor, Tensor)>;

#[derive(Clone, Copy)]
pub struct SequenceMlp {
    /// Of a \[width, hidden/t\], b \[hidden/t, width\] and x \[rows/t, width\]: gelu(x·a)·b.
    pub forward: Forward,
    /// Of a, b, what the forward pass has kept, and the gradient of its result.
    pub backward: Backward,
}

pub const LIBRARY: SequenceMlp = SequenceMlp {
    forward: |comm, a, b, x| forward(comm, a, b, x, gathered, scattered),
    backward: |comm, a, b, kept, dz| backward(comm, a, b, kept, dz, gathered, scattered),
};

/// Nothing is exchanged: a rank computes with its rows and its part of the matrices.
pub const WITHOUT: SequenceMlp = SequenceMlp {
    forward: |comm, a, b, x| forward(comm, a, b, x, alone, alone),
    backward: |comm, a, b, kept, dz| backward(comm, a, b, kept, dz, alone, alone),
};

/// What ranks do with rows.
type Exchange = fn(&Comm, &Tensor) -> Result<Tensor>;

fn forward(
    comm: &Comm,
    a: &Tensor,
    b: &Tensor,
    x: &Tensor,
    gathered: Exchange,
    scattered: Exchange,
) -> Result<(Tensor, Vec<Tensor>)> {
    let h = gathered(comm, x)?.matmul(a)?;
    let z = scattered(comm, &gelu(h.copy()?)?.matmul(b)?)?;
    // Its own rows are enough: the backward pass gathers them again, as Megatron-LM does.
    Ok((z, vec![x.clone(), h]))
}

fn backward(
    comm: &Comm,
    a: &Tensor,
    b: &Tensor,
    kept: Vec<Tensor>,
    dz: &Tensor,
    gathered: Exchange,
    scattered: Exchange,
) -> Result<(Tensor, Tensor, Tensor)> {
    let [x, h] = &kept[..] else {
        anyhow::bail!("the forward pass keeps its rows and the hidden layer")
    };
    let dz = gathered(comm, dz)?;
    let db = gelu(h.copy()?)?.t()?.matmul(&dz)?;
    let dh = gelu_gradient(h, &dz.matmul(&b.t()?)?)?;
    let da = gathered(comm, x)?.t()?.matmul(&dh)?;
    let dx = scattered(comm, &dh.matmul(&a.t()?)?)?;
    Ok((dx, da, db))
}

/// The gradient of `h`, given the gradient `dy` of gelu(h).
fn gelu_gradient(h: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let x = Activation::start(elements(h)?, h.shape())?;
    let dx = gelu(x.clone())?.backward(elements(dy)?, None)?.of(&x)?;
    Ok(Tensor::from_vec(dx, h.shape(), &Device::Cpu)?)
}

fn gathered(comm: &Comm, rows: &Tensor) -> Result<Tensor> {
    let (height, width) = rows.dims2()?;
    let all = comm.gathered(&elements(rows)?)?;
    Ok(Tensor::from_vec(all, (comm.size() * height, width), &Device::Cpu)?)
}

fn scattered(comm: &Comm, rows: &Tensor) -> Result<Tensor> {
    let (height, width) = rows.dims2()?;
    let mut mine = vec![0.0; height / comm.size() * width];
    comm.reduce_scatter(&elements(rows)?, &mut mine, Reduce::Sum)?;
    Ok(Tensor::from_vec(mine, (height / comm.size(), width), &Device::Cpu)?)
}

fn alone(_comm: &Comm, rows: &Tensor) -> Result<Tensor> {
    Ok(rows.contiguous()?)
}

fn elements(rows: &Tensor) -> Result<Vec<f32>> {
    Ok(rows.flatten_all()?.to_vec1()?)
}
