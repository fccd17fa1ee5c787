//! lab05 · One layer, many ranks
//!
//! What if one layer is too large for a rank, even while it computes? Each rank multiplies with its
//! slice of every matrix, and the ranks add up their results. `mlp` is one such layer in its
//! plainest form; the first check runs it beside the library's, which trains the GPT.
//!
//! Run `cargo run --bin lab05`: two ranks share every layer of a small GPT, and the checks compare
//! every gradient with one rank's. See what a missing sum does: `--break no-g`.

use anyhow::{Context, Result};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Shape, Tensor, Var};
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Uniform;
use shardlab::model::{Build, Layer, Mlp, Pass, Role};
use shardlab::parallel::TensorParallel;
use shardlab::tensor::{Init, Params, Whole};

// ANCHOR: heart
/// The MLP of a transformer block on one of the ranks that share it: gelu(x·A)·B, where the rank
/// has some columns of A and the same rows of B. Shapes: x [rows, width], the same on all ranks; a
/// [width, inner / ranks]; b [inner / ranks, width].
fn mlp(x: &Tensor, a: &Tensor, b: &Tensor, group: &Comm) -> candle_core::Result<Tensor> {
    let x = f(x, group)?;
    // My columns of x·A: they are whole sums, so gelu may be applied.
    let h = x.matmul(a)?.gelu_erf()?;
    let y = h.matmul(b)?; // my summand of the result
    g(&y, group)
}

/// Megatron's f, before the first matrix. Forward, nothing: every rank uses the same x. Backward,
/// it adds up the ranks' gradients of x.
fn f(x: &Tensor, group: &Comm) -> candle_core::Result<Tensor> {
    add_up(x, In::Backward, group)
}

/// Megatron's g, after the second matrix. Forward, it adds up the ranks' summands. Backward,
/// nothing: the gradient of a sum is the gradient of each summand.
fn g(y: &Tensor, group: &Comm) -> candle_core::Result<Tensor> {
    add_up(y, In::Forward, group)
}
// ANCHOR_END: heart

fn add_up(x: &Tensor, pass: In, group: &Comm) -> candle_core::Result<Tensor> {
    let group = group.clone();
    x.contiguous()?.apply_op1(Sum { pass, group })
}

/// The pass in which ranks add up.
#[derive(PartialEq)]
enum In {
    Forward,
    Backward,
}

// ANCHOR: sum
/// Adds up the ranks' tensors in one of the two passes, and leaves them as they are in the other.
struct Sum {
    pass: In,
    group: Comm,
}

impl CustomOp1 for Sum {
    fn name(&self) -> &'static str {
        "sum over the tensor group"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let from = layout.start_offset();
        let mut sum = x.as_slice::<f32>()?[from..from + layout.shape().elem_count()].to_vec();
        if self.pass == In::Forward {
            let summed = self.group.all_reduce(&mut sum, Reduce::Sum);
            summed.map_err(candle_core::Error::wrap)?;
        }
        Ok((CpuStorage::F32(sum), layout.shape().clone()))
    }

    fn bwd(&self, _x: &Tensor, _y: &Tensor, dy: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let mut sum = dy.flatten_all()?.to_vec1::<f32>()?;
        if self.pass == In::Backward {
            let summed = self.group.all_reduce(&mut sum, Reduce::Sum);
            summed.map_err(candle_core::Error::wrap)?;
        }
        Ok(Some(Tensor::from_vec(sum, dy.shape(), dy.device())?))
    }
}
// ANCHOR_END: sum

const ROWS: usize = 8;
const WIDTH: usize = 64;
/// The columns of A that each rank has.
const SHARE: usize = 32;

/// Compares the MLP above with the library's: the same x, and the same slices of A and B. Returns
/// the result or the gradient of x, whichever is nearer to its bound.
pub fn compare_mlps(group: &Comm, seed: u64) -> Result<Beside> {
    let inner = SHARE * group.size();
    let params = Params::new();
    let tensor = TensorParallel::new(group.clone());
    let matrix = |name: &str, shape: [usize; 2]| Whole::new(name, &shape, Init::Normal(0.2));
    let library = Mlp {
        fc: tensor.linear(&params, matrix("fc", [inner, WIDTH]), Role::MlpIn)?,
        out: tensor.linear(&params, matrix("out", [WIDTH, inner]), Role::MlpOut)?,
        name: "mlp".into(),
    };
    params.allocate(seed);
    let samples = Uniform { seed, rank: 0, batch: ROWS, width: WIDTH };
    let x = Var::from_vec(samples.batch(0), (1, ROWS, WIDTH), &Device::Cpu)?;

    // The library stores a matrix transposed.
    let slice = |i: usize| -> Result<Tensor> {
        let spec = &params.specs()[i];
        let values = params.values()[spec.range()].to_vec();
        let weight = Tensor::from_vec(values, &spec.shape[..], &Device::Cpu)?;
        Ok(weight.t()?.contiguous()?)
    };
    let a = slice(0)?;
    let b = slice(1)?;
    let bounds = bounds(&x.reshape((ROWS, WIDTH))?, &a, &b, group)?;
    let [y, dx] = with_gradient(&x, mlp(&x.reshape((ROWS, WIDTH))?, &a, &b, group)?)?;
    let [expected_y, expected_dx] =
        with_gradient(&x, library.on_graph(&x, &Pass::training(None))?)?;
    let of_y = Beside::of(group, &y, &expected_y, bounds[0])?;
    let of_dx = Beside::of(group, &dx, &expected_dx, bounds[1])?;
    Ok(of_y.or_nearer(of_dx))
}

/// The elements of `y`, and of the gradient that the sum of all of them has in `x`.
fn with_gradient(x: &Var, y: Tensor) -> Result<[Vec<f32>; 2]> {
    let gradients = y.sum_all()?.backward()?;
    let dx = gradients.get(x).context("no gradient of the input")?;
    let elements = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    Ok([elements(&y)?, elements(dx)?])
}

/// The most by which two orders of adding can change a result, and a gradient of the input.
///
/// A sum of k products is off by at most k roundings of the sum of their absolute values (Higham,
/// Accuracy and Stability of Numerical Algorithms, section 3.1). So the same passes with absolute
/// values bound both: an element of y has passed through sums of WIDTH and of all columns'
/// products, and GELU, whose slope is at most 1.13, and whose slope's slope is at most 1.
fn bounds(x: &Tensor, a: &Tensor, b: &Tensor, group: &Comm) -> Result<[f64; 2]> {
    let h = x.abs()?.matmul(&a.abs()?)?;
    let of_y = h.matmul(&b.abs()?)?;
    let slopes = (h + 1.13)?.broadcast_mul(&b.abs()?.sum(1)?)?;
    let of_dx = slopes.matmul(&a.abs()?.t()?)?;
    let roundings = 2.0 * (2 * WIDTH + SHARE * group.size() + 8) as f64;
    let mut bounds = [0.0; 2];
    for (bound, tensor) in bounds.iter_mut().zip([of_y, of_dx]) {
        let mut sums = tensor.flatten_all()?.to_vec1::<f32>()?;
        group.all_reduce(&mut sums, Reduce::Sum)?;
        let largest = sums.iter().fold(0f32, |most, &sum| most.max(sum));
        *bound = 1.13 * roundings * f64::from(f32::EPSILON) / 2.0 * f64::from(largest);
    }
    Ok(bounds)
}
