//! The auxiliary losses of routers, and how even their choices are.
//!
//! With c_i copies for expert i of E, k for each of T tokens, f_i = c_i / (k T) is the expert's
//! part of the copies, and P_i the mean of its scores over all tokens. E Σ f_i P_i is 1 if both are
//! even, and up to E if one expert gets everything (Shazeer et al., arXiv 1701.06538; Fedus et al.,
//! arXiv 2101.03961). Scores that are sigmoids count as parts of their sum. Choices have no
//! gradient, so f_i counts as a constant, and the loss lowers the scores of experts that get much.
//! The z-loss is the mean of (log Σ exp(logits))², which keeps logits small (Zoph et al.,
//! arXiv 2202.08906).
//!
//! Ranks with tokens of their own may count f each for itself, or all together. Only the second is
//! one rank's loss: a mean of products is not the product of means. P needs no count over ranks,
//! because the loss is linear in it, and the mean of gradients is the mean over ranks. In the same
//! way each of several micro-batches has an f of its own, which makes another loss of one batch.
//!
//! These losses are not added to the one that a pass computes. Their gradient is added to that of
//! the router's logits where the backward pass meets them. So it does not matter whether the loss
//! is on another pipeline stage, nor whether blocks are computed again.

use crate::plan::Scores;
use crate::tensor::{Tensor, TensorOp, apply, read, rows};
use candle_core::{Result, Shape};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What pulls on routers, beside the loss of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Auxiliary {
    /// The factor of the balancing loss; 0 leaves it out.
    pub coefficient: f64,
    pub scope: Scope,
    /// Whether f counts the choices of all ranks; each rank counts its own otherwise.
    pub over_ranks: bool,
    /// The factor of the z-loss; 0 leaves it out.
    pub z: f64,
}

/// Of what f and P are the means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// A loss for each layer, all added up, as in Megatron-LM.
    #[default]
    Layer,
    /// One loss over the tokens of all layers, k times as large, as in transformers.
    Model,
}

/// What one layer's router has chosen in a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The experts of each token, highest score first.
    pub chosen: Vec<u32>,
    /// Copies for each expert, also those that its capacity drops.
    pub copies: Vec<u64>,
    /// Whether each choice is within its expert's capacity; without capacities nothing.
    pub kept: Vec<bool>,
    /// For each expert the mean of its scores over all tokens.
    pub scores: Vec<f64>,
    pub tokens: usize,
    /// For each expert the copies for each token, on all ranks that count together.
    pub parts: Vec<f64>,
    /// The mean of (log Σ exp(logits))².
    pub z: f64,
}

/// Adds up numbers of all ranks, on each of them.
pub type AddUp = Box<dyn Fn(&mut [u64]) -> Result<()> + Send + Sync>;

/// Watches the routers of one pass, and pulls on them in its backward pass.
#[derive(Default)]
pub struct Balance {
    auxiliary: Auxiliary,
    /// `None`: each rank counts for itself.
    add_up: Option<AddUp>,
    watched: Mutex<Watched>,
}

struct Watched {
    /// By layer.
    loads: BTreeMap<String, Load>,
    /// The factor of the model's loss in this backward pass.
    factor: f64,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched { loads: BTreeMap::new(), factor: 1.0 }
    }
}

impl Balance {
    /// For one pass: another one has loads of its own.
    pub fn new(auxiliary: Auxiliary) -> Arc<Balance> {
        Arc::new(Balance { auxiliary, ..Balance::default() })
    }

    /// [`Balance::new`] where `add_up` adds up the counts of all ranks for f.
    pub fn over_ranks(auxiliary: Auxiliary, add_up: AddUp) -> Arc<Balance> {
        Arc::new(Balance { auxiliary, add_up: Some(add_up), ..Balance::default() })
    }

    /// Each layer's load, by its name.
    pub fn loads(&self) -> BTreeMap<String, Load> {
        self.watched().loads.clone()
    }

    /// The balancing loss of the layers that are here, without its coefficient.
    pub fn loss(&self) -> f64 {
        let watched = self.watched();
        let all: Vec<&Load> = watched.loads.values().collect();
        match self.auxiliary.scope {
            Scope::Layer => all.iter().map(|load| balancing(&[load]) / load.each()).sum(),
            Scope::Model => balancing(&all),
        }
    }

    /// The auxiliary losses of the layers that are here, with their coefficients: what the backward
    /// pass adds to the model's loss.
    pub fn weighted(&self) -> f64 {
        let Auxiliary { coefficient, z, .. } = self.auxiliary;
        let squares: f64 = self.watched().loads.values().map(|load| load.z).sum();
        coefficient * self.loss() + z * squares
    }

    /// The backward pass that follows is that of the loss times `factor`: a part of a mean over
    /// micro-batches, or a scaled loss.
    pub fn scale(&self, factor: f64) {
        self.watched().factor = factor;
    }

    /// Notes what `layer` has chosen by `logits` [.., experts], and returns the logits with the
    /// auxiliary losses' gradient behind them.
    pub(super) fn watch(
        self: &Arc<Balance>,
        layer: &str,
        logits: &Tensor,
        chosen: &[u32],
        scores: Scores,
    ) -> Result<Tensor> {
        // A recomputed block chooses once more what it has chosen.
        let is_new = !self.watched().loads.contains_key(layer);
        if is_new {
            let load = self.load(logits, chosen, scores)?;
            self.watched().loads.insert(layer.to_string(), load);
        }
        if self.auxiliary.coefficient == 0.0 && self.auxiliary.z == 0.0 {
            return Ok(logits.clone());
        }
        apply(logits, Pulled { balance: self.clone(), layer: layer.to_string(), scores })
    }

    /// Notes which choices of `layer` are within their experts' capacities.
    pub(super) fn note_kept(&self, layer: &str, kept: &[bool]) {
        if let Some(load) = self.watched().loads.get_mut(layer) {
            load.kept = kept.to_vec();
        }
    }

    fn load(&self, logits: &Tensor, chosen: &[u32], kind: Scores) -> Result<Load> {
        let (tokens, experts) = rows(logits.dims())?;
        let mut copies = vec![0; experts];
        chosen.iter().for_each(|&expert| copies[expert as usize] += 1);
        let mut all = [&copies[..], &[tokens as u64]].concat();
        if let Some(add_up) = &self.add_up {
            add_up(&mut all)?;
        }
        let part = |copies: &u64| *copies as f64 / all[experts] as f64;
        let parts = all[..experts].iter().map(part).collect();
        let mut scores = vec![0.0; experts];
        let mut z = 0.0;
        read(logits, |logits| {
            for row in logits.chunks_exact(experts) {
                let Row { parts, log_sum, .. } = Row::of(row, kind);
                scores.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
                z += log_sum * log_sum;
            }
            Ok(())
        })?;
        scores.iter_mut().for_each(|sum| *sum /= tokens as f64);
        Ok(Load {
            chosen: chosen.to_vec(),
            copies,
            kept: Vec::new(),
            scores,
            tokens,
            parts,
            z: z / tokens as f64,
        })
    }

    /// The derivative of the auxiliary losses by the mean of each expert's scores in `layer`.
    fn pull(&self, layer: &str) -> Vec<f64> {
        let watched = self.watched();
        let all: Vec<&Load> = match self.auxiliary.scope {
            Scope::Layer => watched.loads.get(layer).into_iter().collect(),
            Scope::Model => watched.loads.values().collect(),
        };
        let [first, ..] = all[..] else {
            return Vec::new();
        };
        let layers = all.len() as f64;
        let each = if self.auxiliary.scope == Scope::Layer {
            first.each()
        } else {
            1.0
        };
        let experts = first.copies.len() as f64;
        let factor = self.auxiliary.coefficient * experts / (layers * each);
        let parts = parts(&all);
        parts.into_iter().map(|part| factor * part).collect()
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Copies that capacities dropped.
    pub fn dropped(&self) -> u64 {
        self.kept.iter().filter(|&&kept| !kept).count() as u64
    }

    /// Experts of each token.
    fn each(&self) -> f64 {
        self.copies.iter().sum::<u64>() as f64 / self.tokens as f64
    }

    /// How many times as many copies as the mean the expert with most of them has: a step waits for
    /// it.
    pub fn imbalance(&self) -> f64 {
        let most = self.copies.iter().max().copied().unwrap_or(0);
        let all: u64 = self.copies.iter().sum();
        most as f64 * self.copies.len() as f64 / all as f64
    }
}

/// For each expert its copies for each token, as the mean over layers.
fn parts(all: &[&Load]) -> Vec<f64> {
    let experts = all.first().map_or(0, |load| load.parts.len());
    let mean = |expert: usize| {
        let parts = all.iter().map(|load| load.parts[expert]);
        parts.sum::<f64>() / all.len() as f64
    };
    (0..experts).map(mean).collect()
}

/// E Σ f_i P_i, with an f that is not divided by k.
fn balancing(all: &[&Load]) -> f64 {
    let parts = parts(all);
    let scores =
        |expert: usize| all.iter().map(|load| load.scores[expert]).sum::<f64>() / all.len() as f64;
    let sum: f64 = parts.iter().enumerate().map(|(expert, part)| part * scores(expert)).sum();
    parts.len() as f64 * sum
}

/// One token's scores.
struct Row {
    /// Each expert's part of the sum of all scores.
    parts: Vec<f64>,
    /// The derivative of its score by its logit, as a part of that sum.
    slopes: Vec<f64>,
    /// The logarithm of the sum of the logits' exponentials.
    log_sum: f64,
}

impl Row {
    fn of(logits: &[f32], scores: Scores) -> Row {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&x| f64::from(x - largest).exp()).sum();
        let log_sum = f64::from(largest) + sum.ln();
        let logits = logits.iter().map(|&x| f64::from(x));
        let scored: Vec<f64> = match scores {
            Scores::Softmax => logits.map(|x| (x - log_sum).exp()).collect(),
            Scores::Sigmoid => logits.map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        };
        let sum: f64 = scored.iter().sum();
        let parts = scored.iter().map(|score| score / sum);
        let slopes = match scores {
            Scores::Softmax => scored.clone(),
            Scores::Sigmoid => scored.iter().map(|score| score * (1.0 - score) / sum).collect(),
        };
        Row { parts: parts.collect(), slopes, log_sum }
    }
}

/// Changes nothing in the forward pass.
struct Pulled {
    balance: Arc<Balance>,
    layer: String,
    scores: Scores,
}

impl TensorOp for Pulled {
    const NAME: &'static str = "balance";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        Ok((x.to_vec(), dims.into()))
    }

    fn input_gradient(&self, x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (tokens, experts) = rows(dims)?;
        let pull = self.balance.pull(&self.layer);
        let factor = self.balance.watched().factor / tokens as f64;
        let z = 2.0 * self.balance.auxiliary.z;
        let mut dx = Vec::with_capacity(dy.len());
        for (row, dy) in x.chunks_exact(experts).zip(dy.chunks_exact(experts)) {
            let Row { parts, slopes, log_sum } = Row::of(row, self.scores);
            let mean: f64 = parts.iter().zip(&pull).map(|(part, pull)| part * pull).sum();
            let pulls = slopes.iter().zip(&pull).map(|(slope, pull)| slope * (pull - mean));
            for ((pull, &x), dy) in pulls.zip(row).zip(dy) {
                let own = pull + z * log_sum * (f64::from(x) - log_sum).exp();
                dx.push(dy + (factor * own) as f32);
            }
        }
        Ok(dx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    const CHOSEN: [u32; 8] = [0, 1, 0, 2, 1, 0, 0, 1];

    fn logits() -> Vec<f32> {
        (0..12).map(|i| ((i * i % 7) as f32 - 3.0) / 2.0).collect()
    }

    /// The auxiliary losses of two layers, which see the same 4 tokens of 3 experts, and the
    /// gradient of the first one's logits in a backward pass of `factor` times nothing.
    fn run(auxiliary: Auxiliary, scores: Scores, first: &[f32], factor: f64) -> (f64, Vec<f32>) {
        let balance = Balance::new(auxiliary);
        let of = |numbers: &[f32]| Var::from_slice(numbers, (4, 3), &Device::Cpu).unwrap();
        let x = of(first);
        let watched = balance.watch("first", &x, &CHOSEN, scores).unwrap();
        // Once more, as by a recomputed block.
        balance.watch("first", &x, &CHOSEN, scores).unwrap();
        let mut others = CHOSEN;
        others.swap(2, 7);
        balance.watch("second", &of(&logits()), &others, scores).unwrap();
        balance.scale(factor);
        let nothing = watched.sub(&watched.clone()).unwrap().sum_all().unwrap();
        let gradients = nothing.backward().unwrap();
        let gradient = gradients.get(&x).unwrap().flatten_all().unwrap();
        (balance.weighted(), gradient.to_vec1().unwrap())
    }

    /// In either form, with the z-loss, and of either scores.
    #[test]
    fn the_gradient_is_that_of_the_loss() {
        for (scope, z, scores) in [
            (Scope::Layer, 0.0, Scores::Softmax),
            (Scope::Model, 0.0, Scores::Softmax),
            (Scope::Layer, 0.5, Scores::Softmax),
            (Scope::Layer, 0.5, Scores::Sigmoid),
        ] {
            let auxiliary = Auxiliary { coefficient: 0.7, scope, z, ..Auxiliary::default() };
            let (_, gradient) = run(auxiliary, scores, &logits(), 4.0);
            for i in 0..12 {
                let loss = |step: f32| {
                    let mut moved = logits();
                    moved[i] += step;
                    run(auxiliary, scores, &moved, 4.0).0
                };
                let quotient = 4.0 * (loss(1e-2) - loss(-1e-2)) / 2e-2;
                let apart = (quotient - f64::from(gradient[i])).abs();
                assert!(apart < 2e-4, "{scope:?} {z} {scores:?} {i}: {quotient} {}", gradient[i]);
            }
        }
    }

    /// By hand: 4 and 3 and 1 of 8 copies in the first layer.
    #[test]
    fn an_even_load_costs_1_a_layer() {
        let auxiliary = |scope| Auxiliary { coefficient: 1.0, scope, ..Auxiliary::default() };
        let balance = Balance::new(auxiliary(Scope::Layer));
        let x = Tensor::zeros((4, 3), candle_core::DType::F32, &Device::Cpu).unwrap();
        balance.watch("alone", &x, &CHOSEN, Scores::Softmax).unwrap();
        let load = &balance.loads()["alone"];
        assert_eq!((load.copies.as_slice(), load.tokens), (&[4, 3, 1][..], 4));
        assert_eq!(load.imbalance(), 1.5);
        assert!((balance.loss() - 1.0).abs() < 1e-12);
        // transformers does not divide by the two experts of each token.
        let pooled = Balance::new(auxiliary(Scope::Model));
        pooled.watch("alone", &x, &CHOSEN, Scores::Softmax).unwrap();
        assert!((pooled.loss() - 2.0).abs() < 1e-12);
        assert!((load.z - 3f64.ln().powi(2)).abs() < 1e-12);
    }
}
