//! lab13 · Experts
//!
//! What if each token uses a part of the model, and nobody knows which part? A router chooses its
//! experts, MLPs that ranks share. In `mixture`, the plainest way, every rank gets all tokens.
//!
//! Run `cargo run --bin lab13`. See what a wrong divisor does: `--break average-all`.

use crate::sample::{Sample, TOKENS, WIDTH};
use anyhow::{Context, Result};
use candle_core::{D, Device, Error, Result as Candle, Shape, Tensor, Var};
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::model::{Layer, Pass};
use shardlab::plan::Experts;
use shardlab::tensor::{Spec, TensorOp, apply};
use std::sync::Arc;

// ANCHOR: heart
/// A mixture of experts, which the ranks of `group` share in rank order. Each rank has tokens of
/// its own. Shapes: x and the result [tokens here, width]; router [all experts, width], the same on
/// all ranks; `experts` are this rank's, two matrices each: [inner, width] and [width, inner].
fn mixture(
    x: &Tensor,
    router: &Tensor,
    experts: &[[Var; 2]],
    top: usize,
    group: &Comm,
) -> Candle<Tensor> {
    // My tokens choose: a table of weights [tokens here, all experts], 0 where not chosen.
    let scores = candle_nn::ops::softmax(&x.matmul(&router.t()?)?, D::Minus1)?;
    let chosen = scores.arg_sort_last_dim(false)?.narrow(1, 0, top)?.contiguous()?;
    let ones = chosen.ones_like()?.to_dtype(scores.dtype())?;
    let scores = (&scores * scores.zeros_like()?.scatter_add(&chosen, &ones, 1)?)?;
    let weights = scores.broadcast_div(&scores.sum_keepdim(1)?)?;

    // All ranks' tokens and tables, rank by rank. In one exchange: of two, a rank that nobody chose
    // would leave out the table's backward pass, since candle drops products without rows.
    let all = gather(&Tensor::cat(&[x, &weights], 1)?, group)?;
    let width = x.dim(1)?;

    // My experts compute the tokens that have chosen them: perhaps all, perhaps none.
    let mut sums = all.narrow(1, 0, width)?.zeros_like()?;
    for (number, [a, b]) in (group.rank() * experts.len()..).zip(experts) {
        let weights = all.narrow(1, width + number, 1)?.flatten_all()?.to_vec1::<f32>()?;
        let chose = (0..).zip(weights).filter(|(_, weight)| *weight > 0.0);
        let rows = Tensor::from_iter(chose.map(|(row, _)| row as u32), all.device())?;
        let mine = all.index_select(&rows, 0)?;
        let y = mine.narrow(1, 0, width)?.matmul(&a.t()?)?.gelu_erf()?.matmul(&b.t()?)?;
        let y = y.broadcast_mul(&mine.narrow(1, width + number, 1)?)?;
        sums = sums.index_add(&rows, &y, 0)?;
    }
    add_up(&sums, group) // every rank's sums, for my tokens
}
// ANCHOR_END: heart

// ANCHOR: exchange
/// All ranks' rows, on each of them. Backward, the sum of the gradients that they have for mine.
fn gather(x: &Tensor, group: &Comm) -> Candle<Tensor> {
    apply(&x.contiguous()?, Exchange { gathers: true, group: group.clone() })
}

/// The sum of all ranks' rows for my place. Backward, a gradient of a sum is that of each summand.
fn add_up(x: &Tensor, group: &Comm) -> Candle<Tensor> {
    apply(&x.contiguous()?, Exchange { gathers: false, group: group.clone() })
}

/// An all-gather or a reduce-scatter. Each is the other's backward pass.
struct Exchange {
    gathers: bool,
    group: Comm,
}

impl Exchange {
    fn run(&self, gathers: bool, x: &[f32]) -> Candle<Vec<f32>> {
        let ranks = self.group.size();
        let mut y = vec![0.0; if gathers { x.len() * ranks } else { x.len() / ranks }];
        let done = if gathers {
            self.group.all_gather(x, &mut y)
        } else {
            self.group.reduce_scatter(x, &mut y, Reduce::Sum)
        };
        done.map_err(Error::wrap).map(|()| y)
    }
}

impl TensorOp for Exchange {
    const NAME: &'static str = "exchange of rows";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Candle<(Vec<f32>, Shape)> {
        let y = self.run(self.gathers, x)?;
        let shape = (y.len() / dims[1], dims[1]).into();
        Ok((y, shape))
    }

    fn input_gradient(&self, _x: &[f32], _dims: &[usize], dy: &[f32]) -> Candle<Vec<f32>> {
        self.run(!self.gathers, dy)
    }
}
// ANCHOR_END: exchange

impl Sample {
    /// The lesson's result, and what tokens, router and experts get as gradients of its squares.
    pub fn lesson(&self) -> Result<Vec<f32>> {
        let values = self.params.values();
        let var = |spec: &Arc<Spec>| {
            Var::from_slice(&values[spec.range()], &spec.shape[..], &Device::Cpu)
        };
        let weights: Vec<Var> = self.params.specs().iter().map(var).collect::<Candle<_>>()?;
        let (experts, _) = weights[1..].as_chunks();
        let y = mixture(&self.x, &weights[0], experts, self.library.rules.top_k, &self.group)?;
        self.with_gradients(&y, &weights)
    }

    /// The library's, in the same order.
    pub fn library(&self, pass: &Pass) -> Result<Vec<f32>> {
        self.params.zero_gradients();
        let all = self.with_gradients(&self.library.on_graph(&self.x, pass)?, &[])?;
        Ok([&all[..], &self.params.gradients()].concat())
    }

    fn with_gradients(&self, y: &Tensor, weights: &[Var]) -> Result<Vec<f32>> {
        let gradients = y.sqr()?.sum_all()?.backward()?;
        let mut all = y.flatten_all()?.to_vec1::<f32>()?;
        for x in [&self.x].into_iter().chain(weights) {
            let gradient = gradients.get(x).context("a gradient is missing")?;
            all.extend(gradient.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(all)
    }
}

/// Compares the mixture above with the library's: results and all gradients. A number passes
/// through at most `roundings`, each at most 2^-24 of a partial sum. With random signs partial sums
/// are about as large as results, and roundings cancel: the bound is no proof, and has room.
pub fn compare_with_expert_parallel(group: &Comm, rules: Experts, seed: u64) -> Result<Beside> {
    let sample = Sample::new(group, rules, seed)?;
    let [lesson, library] = [sample.lesson()?, sample.library(&Pass::training(None))?];
    let mut largest = [library.iter().fold(0f32, |most, x| most.max(x.abs()))];
    group.all_reduce(&mut largest, Reduce::Max)?;
    let roundings = 5 * WIDTH + rules.count + TOKENS * group.size();
    let bound = roundings as f64 * f64::from(f32::EPSILON / 2.0 * largest[0]);
    Ok(Beside::of(group, &lesson, &library, bound)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::largest_difference;
    use shardlab::launch;

    /// A router of zeros takes the first expert for every token.
    #[test]
    fn ranks_that_nobody_chose_take_part_in_both_passes() {
        launch::run(4, |comm| {
            let rules = Experts { count: 8, top_k: 1, normalized: true, ..Experts::default() };
            let sample = Sample::new(&comm, rules, 7)?;
            let router = sample.params.specs()[0].range();
            sample.params.values_mut()[router].fill(0.0);
            let library = sample.library(&Pass::training(None))?;
            let apart = largest_difference(&sample.lesson()?, &library);
            assert!(apart < 1e-3, "{apart:e}");
            let expert = &library[library.len() - WIDTH * WIDTH..];
            assert!(expert.iter().all(|g| *g == 0.0), "rank {}", comm.rank());
            Ok(())
        })
        .unwrap();
    }
}
