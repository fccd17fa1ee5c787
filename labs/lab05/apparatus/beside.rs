//! The lesson's MLP beside the library's, with the same slices of the same matrices.

use anyhow::{Context, Result};
use candle_core::{Device, Tensor, Var};
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Uniform;
use shardlab::model::{Build, Layer, Mlp, Pass, Role};
use shardlab::parallel::TensorParallel;
use shardlab::tensor::{Init, Params, Whole};

const ROWS: usize = 8;
const WIDTH: usize = 64;
/// The columns of A that each rank has.
const SHARE: usize = 32;

/// Compares the results, and the gradients of the input. Returns the one that is nearer to its
/// bound. `mlp` is the lesson's: of x, this rank's columns of A, its rows of B, and the ranks that
/// share them.
pub fn compare_mlps(
    group: &Comm,
    seed: u64,
    mlp: impl Fn(&Tensor, &Tensor, &Tensor, &Comm) -> candle_core::Result<Tensor>,
) -> Result<Beside> {
    let inner = SHARE * group.size();
    let params = Params::new();
    let tensor = TensorParallel::new(group.clone(), false, 1);
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
    let [expected_y, expected_dx] = with_gradient(&x, library.forward(&x, &Pass::training(None))?)?;
    let of_y = Beside::of(group, &y, &expected_y, bounds[0])?;
    let of_dx = Beside::of(group, &dx, &expected_dx, bounds[1])?;
    let used = |beside: Beside| beside.difference / beside.bound;
    if used(of_dx) > used(of_y) { Ok(of_dx) } else { Ok(of_y) }
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
