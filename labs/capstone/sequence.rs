//! Life 2's layers: the library's tensor parallelism, with the part `mlp` in the place of its MLP.

use crate::parts::mlp::SequenceMlp;
use anyhow::Result;
use candle_core::{Error, Shape};
use shardlab::comm::{Comm, CommError};
use shardlab::model::{
    Attention, Block, Build, Chunk, Entry, Exit, Heads, Input, Layer, Pass, Role,
};
use shardlab::parallel::TensorParallel;
use shardlab::plan::{ModelShape, Named};
use shardlab::tensor::{
    Activation, Copies, Cut, Device, Init, Param, Params, Tensor, TensorOp, Whole, apply, rows,
};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// One rank's layers: a stage of the pipeline, of which it has its share.
pub struct Stage {
    params: Arc<Params>,
    entry: Option<Box<dyn Entry>>,
    blocks: Vec<Block>,
    /// The last norm and the head.
    end: Option<(Box<dyn Layer>, Box<dyn Exit>)>,
}

impl Stage {
    /// Declares `layers`, of which tensor ranks share every matrix.
    pub fn new(
        shape: &ModelShape,
        layers: Range<usize>,
        tensor: &TensorParallel,
        part: SequenceMlp,
    ) -> Result<Stage> {
        let params = Params::new();
        // They are all loaded.
        let zeros = |(name, dims): Named| Whole::new(name, &dims, Init::Constant(0.0));
        let first = layers.start == 0;
        // The first stage and the last one have a copy of the token table each.
        let table = || tensor.table(&params, zeros(shape.table_named()), Copies::Tied { first });
        let entry = match first {
            true => Some(tensor.entry(&params, table()?, shape.positions_named().map(zeros))?),
            false => None,
        };
        let end = match layers.end == shape.layers {
            true => {
                let norm = zeros(shape.last_norm_named().swap_remove(0));
                Some((tensor.norm(&params, norm)?, tensor.exit(table()?)))
            }
            false => None,
        };
        let block = |layer: usize| -> Result<Block> {
            let whole = |part: &str| zeros(shape.block_named(layer, part));
            let attention = Attention {
                qkv: tensor.linear(&params, whole("qkv.weight"), Role::AttentionIn)?,
                proj: tensor.linear(&params, whole("proj.weight"), Role::AttentionOut)?,
                heads: Heads {
                    queries: tensor.heads(shape.heads),
                    kv: tensor.heads(shape.heads).len(),
                },
                name: shape.block_name(layer),
            };
            let matrices = [whole("fc.weight"), whole("out.weight")];
            Ok(Block {
                norm1: tensor.norm(&params, whole("ln1.weight"))?,
                attention: Box::new(attention),
                norm2: tensor.norm(&params, whole("ln2.weight"))?,
                mlp: Box::new(SharedMlp::declare(&params, matrices, tensor.group(), part)?),
            })
        };
        let blocks = layers.map(block).collect::<Result<_>>()?;
        Ok(Stage { params, entry, blocks, end })
    }
}

impl Chunk for Stage {
    fn params(&self) -> &Arc<Params> {
        &self.params
    }

    fn forward(
        &self,
        input: Input,
        targets: &[u32],
        pass: &Pass,
    ) -> candle_core::Result<Activation> {
        let mut x = match (input, &self.entry) {
            (Input::Tokens { ids, length }, Some(entry)) => entry.forward(ids, length, pass)?,
            (Input::Hidden(x), None) => x.clone(),
            _ => candle_core::bail!("the first stage takes tokens, all others activations"),
        };
        for block in &self.blocks {
            x = block.forward(&x, pass)?;
        }
        match &self.end {
            Some((norm, exit)) => exit.loss(&norm.forward(&x, pass)?, targets, pass),
            None => Ok(x),
        }
    }
}

/// An MLP of which every tensor rank has some of the hidden layer, and outside of it some
/// positions.
#[derive(Clone)]
struct SharedMlp {
    /// \[hidden/t, width\]: the first matrix, transposed, as all weights are stored.
    fc: Arc<Param>,
    /// \[width, hidden/t\]: the second one.
    out: Arc<Param>,
    group: Comm,
    part: SequenceMlp,
}

impl SharedMlp {
    fn declare(
        params: &Arc<Params>,
        [fc, out]: [Whole; 2],
        group: &Comm,
        part: SequenceMlp,
    ) -> Result<SharedMlp> {
        let each = fc.shape[0] / group.size();
        let mine = group.rank() * each..(group.rank() + 1) * each;
        let declare = |whole: Whole, cut| {
            params.declare_shard(whole.name.clone(), whole, cut, Copies::One).map(Arc::new)
        };
        Ok(SharedMlp {
            fc: declare(fc, Cut::rows(mine.clone()))?,
            out: declare(out, Cut::Columns(mine))?,
            group: group.clone(),
            part,
        })
    }

    /// The matrices as the part takes them: a \[width, hidden/t\] and b \[hidden/t, width\].
    fn matrices(&self) -> candle_core::Result<[Tensor; 2]> {
        let transposed = |param: &Param| {
            let shape = &param.spec().shape[..];
            let matrix = Tensor::from_slice(&param.value()?, shape, &Device::Cpu)?;
            matrix.t()?.contiguous()
        };
        Ok([transposed(&self.fc)?, transposed(&self.out)?])
    }
}

impl Layer for SharedMlp {
    fn forward(&self, x: &Activation, _pass: &Pass) -> candle_core::Result<Activation> {
        apply(x, Applied { mlp: self.clone(), kept: Mutex::default() })
    }
}

/// The MLP as one operation.
struct Applied {
    mlp: SharedMlp,
    /// What the part wants back in its backward pass.
    kept: Mutex<Vec<Tensor>>,
}

impl TensorOp for Applied {
    const NAME: &'static str = "shared MLP";

    fn forward(&self, x: &[f32], dims: &[usize]) -> candle_core::Result<(Vec<f32>, Shape)> {
        let SharedMlp { group, part, .. } = &self.mlp;
        let [a, b] = self.mlp.matrices()?;
        let x = Tensor::from_slice(x, rows(dims)?, &Device::Cpu)?;
        let (z, kept) = (part.forward)(group, &a, &b, &x).map_err(of_part)?;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok((numbers(&z)?, dims.into()))
    }

    fn input_gradient(
        &self,
        _x: &[f32],
        dims: &[usize],
        dz: &[f32],
    ) -> candle_core::Result<Vec<f32>> {
        let SharedMlp { group, part, fc, out } = &self.mlp;
        let [a, b] = self.mlp.matrices()?;
        let dz = Tensor::from_slice(dz, rows(dims)?, &Device::Cpu)?;
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let (dx, da, db) = (part.backward)(group, &a, &b, kept, &dz).map_err(of_part)?;
        for (param, gradient) in [(fc, da), (out, db)] {
            let transposed = numbers(&gradient.t()?)?;
            param.add_gradient(|sum| {
                sum.iter_mut().zip(&transposed).for_each(|(sum, g)| *sum += g);
            })?;
        }
        numbers(&dx)
    }
}

fn numbers(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

/// Keeps what the run knows about an error of communication.
fn of_part(error: anyhow::Error) -> Error {
    match error.downcast::<CommError>() {
        Ok(error) => Error::wrap(error),
        Err(error) => Error::Msg(format!("{error:#}")),
    }
}
