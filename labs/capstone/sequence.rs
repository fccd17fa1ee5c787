//! Life 2's layers: the library's tensor parallelism, with the part `mlp` in the place of its MLP.

use crate::meter::Meter;
use crate::model;
use crate::parts::Part;
use crate::parts::mlp::SequenceMlp;
use anyhow::Result;
use candle_core::{Error, Shape};
use shardlab::comm::{Comm, CommError};
use shardlab::model::{Block, Chunk, Entry, Input, Layer, Pass};
use shardlab::parallel::TensorParallel;
use shardlab::plan::ModelShape;
use shardlab::tensor::{Copies, Cut, Device, Param, Params, Tensor, TensorOp, Whole, apply, rows};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// One rank's layers: a stage of the pipeline, of which it has its share.
pub struct Stage {
    params: Arc<Params>,
    entry: Option<Box<dyn Entry>>,
    blocks: Vec<Block>,
    head: Option<model::Head>,
}

impl Stage {
    /// Declares `layers`, of which tensor ranks share every matrix.
    pub fn new(
        shape: &ModelShape,
        layers: Range<usize>,
        tensor: &TensorParallel,
        part: SequenceMlp,
        meter: &Arc<Meter>,
    ) -> Result<Stage> {
        let params = Params::new();
        let [first, last] = [layers.start == 0, layers.end == shape.layers];
        // The first stage and the last one have a copy of the token table each.
        let table = || model::table(shape, &params, tensor, Copies::Tied { first });
        let entry = match first {
            true => Some(model::entry(shape, &params, tensor, table()?)?),
            false => None,
        };
        let mlp = |params: &Arc<Params>, matrices, _name| -> Result<Box<dyn Layer>> {
            let mlp = Shared::declare(params, matrices, tensor.group(), part, meter)?;
            Ok(Box::new(SharedMlp(Arc::new(mlp))))
        };
        let blocks = layers
            .map(|layer| model::block(shape, &params, layer, tensor, &mlp))
            .collect::<Result<_>>()?;
        let head = match last {
            true => Some(model::head(shape, &params, tensor, table()?)?),
            false => None,
        };
        Ok(Stage { params, entry, blocks, head })
    }
}

impl Chunk for Stage {
    fn params(&self) -> &Arc<Params> {
        &self.params
    }

    fn forward(&self, input: Input, targets: &[u32], pass: &Pass) -> candle_core::Result<Tensor> {
        let mut x = match (input, &self.entry) {
            (Input::Tokens { ids, length }, Some(entry)) => entry.forward(ids, length, pass)?,
            (Input::Hidden(x), None) => x.clone(),
            _ => candle_core::bail!("the first stage takes tokens, all others activations"),
        };
        for block in &self.blocks {
            x = block.forward(&x, pass)?;
        }
        match &self.head {
            Some((norm, exit)) => exit.loss(&norm.forward(&x, pass)?, targets, pass),
            None => Ok(x),
        }
    }
}

/// An MLP of which every tensor rank has some of the hidden layer, and outside of it some
/// positions.
struct SharedMlp(Arc<Shared>);

struct Shared {
    /// \[hidden/t, width\]: the first matrix, transposed, as all weights are stored.
    fc: Param,
    /// \[width, hidden/t\]: the second one.
    out: Param,
    group: Comm,
    part: SequenceMlp,
    meter: Arc<Meter>,
}

impl Shared {
    fn declare(
        params: &Arc<Params>,
        [fc, out]: [Whole; 2],
        group: &Comm,
        part: SequenceMlp,
        meter: &Arc<Meter>,
    ) -> Result<Shared> {
        let each = fc.shape[0] / group.size();
        let mine = group.rank() * each..(group.rank() + 1) * each;
        let declare =
            |whole: Whole, cut| params.declare_shard(whole.name.clone(), whole, cut, Copies::One);
        Ok(Shared {
            fc: declare(fc, Cut::rows(mine.clone()))?,
            out: declare(out, Cut::Columns(mine))?,
            group: group.clone(),
            part,
            meter: meter.clone(),
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
    fn forward(&self, x: &Tensor, _pass: &Pass) -> candle_core::Result<Tensor> {
        apply(x, Applied { mlp: self.0.clone(), kept: Mutex::default() })
    }
}

/// The MLP as a node of the graph.
struct Applied {
    mlp: Arc<Shared>,
    /// What the part wants back in its backward pass.
    kept: Mutex<Option<Vec<Tensor>>>,
}

impl Applied {
    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Vec<Tensor>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TensorOp for Applied {
    const NAME: &'static str = "shared MLP";

    fn forward(&self, x: &[f32], dims: &[usize]) -> candle_core::Result<(Vec<f32>, Shape)> {
        let Shared { group, part, meter, .. } = &*self.mlp;
        let [a, b] = self.mlp.matrices()?;
        let x = Tensor::from_slice(x, rows(dims)?, &Device::Cpu)?;
        let ran = meter.part(Part::Mlp, || (part.forward)(group, &a, &b, &x));
        let (z, kept) = ran.map_err(of_part)?;
        *self.kept() = Some(kept);
        Ok((expect(&z, x.dims(), "the result")?, dims.into()))
    }

    fn input_gradient(
        &self,
        _x: &[f32],
        dims: &[usize],
        dz: &[f32],
    ) -> candle_core::Result<Vec<f32>> {
        let Shared { group, part, meter, fc, out } = &*self.mlp;
        let [a, b] = self.mlp.matrices()?;
        let dz = Tensor::from_slice(dz, rows(dims)?, &Device::Cpu)?;
        let kept = self.kept().take().unwrap_or_default();
        let ran = meter.part(Part::Mlp, || (part.backward)(group, &a, &b, kept, &dz));
        let (dx, da, db) = ran.map_err(of_part)?;
        for (param, gradient, of) in [(fc, da, &a), (out, db, &b)] {
            expect(&gradient, of.dims(), "the gradient of a matrix")?;
            let transposed = expect(&gradient.t()?, &param.spec().shape, "a gradient")?;
            param.add_gradient(|sum| {
                sum.iter_mut().zip(&transposed).for_each(|(sum, g)| *sum += g);
            })?;
        }
        expect(&dx, dz.dims(), "the gradient of x")
    }
}

/// The numbers of a tensor that must have this shape.
fn expect(tensor: &Tensor, dims: &[usize], what: &str) -> candle_core::Result<Vec<f32>> {
    if tensor.dims() != dims {
        candle_core::bail!(
            "{}: {what} has shape {:?}, and should have {dims:?}",
            Part::Mlp.exercise(),
            tensor.dims()
        );
    }
    tensor.flatten_all()?.to_vec1()
}

/// Keeps what the run knows about an error of communication.
fn of_part(error: anyhow::Error) -> Error {
    match error.downcast::<CommError>() {
        Ok(error) => Error::wrap(error),
        Err(error) => Error::Msg(format!("{error:#}")),
    }
}
