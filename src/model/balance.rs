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
//! Where pipeline stages share the layers, one loss over all of them needs the f of every stage.
//! Each stage adds its own and sends the sum on with its activations, and the last stage's sum
//! comes back with their gradients. So before a backward pass every stage has the model's f. P is
//! again no matter of others: each stage's part of the loss has the P of its own layers.
//!
//! These losses are not added to the one that a pass computes. Their gradient is added to that of
//! the router's logits where the backward pass meets them. So it does not matter whether the loss
//! is on another pipeline stage, nor whether blocks are computed again.

use crate::named::named;
use crate::plan::Scores;
use crate::tensor::{Activation, TensorOp, apply, rows};
use candle_core::{Result, Shape, bail};
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

named! {
    /// Of what f and P are the means. Layers' losses are all added up; the model's one is k times
    /// as large.
    pub enum Scope by default Layer {
        /// One loss for each layer, as in Megatron-LM
        Layer = "layer",
        /// One over the tokens of all layers, as in transformers
        Model = "model",
    }
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
    /// For each expert its parts of the copies, added up over the layers so far, those of earlier
    /// stages among them; behind them the number of these layers. Before a backward pass, over all
    /// layers of the model.
    sums: Vec<f64>,
    /// The factor of the model's loss in this backward pass.
    factor: f64,
    /// By layer, what its router has to choose.
    replayed: BTreeMap<String, Vec<u32>>,
    /// Choices that routers would have made otherwise.
    others: u64,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched {
            loads: BTreeMap::new(),
            sums: Vec::new(),
            factor: 1.0,
            replayed: BTreeMap::new(),
            others: 0,
        }
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

    /// The balancing loss of the layers that are here, without its coefficient. Those of several
    /// stages add up to the model's, after a backward pass.
    pub fn loss(&self) -> f64 {
        let watched = self.watched();
        let loads = watched.loads.values();
        match self.auxiliary.scope {
            Scope::Layer => {
                loads.map(|load| balancing(&load.parts, &load.scores) / load.each()).sum()
            }
            Scope::Model => {
                let (parts, layers) = watched.mean();
                loads.map(|load| balancing(&parts, &load.scores) / layers).sum()
            }
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

    /// What other stages need of the layers so far, if one loss is over all: how many copies each
    /// of `experts` has got for each token, added up over layers, and the number of these layers.
    pub fn sums(&self, experts: usize) -> Option<Vec<f64>> {
        let mut sums = self.watched().sums.clone();
        sums.resize(experts + 1, 0.0); // a stage may have no experts
        (self.auxiliary.scope == Scope::Model).then_some(sums)
    }

    /// Takes the [`sums`](Balance::sums) of another stage: of all earlier layers before a forward
    /// pass, of all layers before a backward pass.
    pub fn set_sums(&self, sums: Vec<f64>) {
        self.watched().sums = sums;
    }

    /// Makes routers choose the experts `chosen` by another pass over the same tokens, layer by
    /// layer. Where products are rounded, a token near a tie otherwise chooses another expert, and
    /// the two passes are those of two models. Weights are still of this pass's own scores.
    pub fn replay(&self, chosen: BTreeMap<String, Vec<u32>>) {
        self.watched().replayed = chosen;
    }

    /// Choices that this pass's routers would have made otherwise than they had to.
    pub fn others(&self) -> u64 {
        self.watched().others
    }

    /// What `layer` has to choose, if it has to, where it would choose `each` experts of a token.
    pub(super) fn replayed(
        &self,
        layer: &str,
        own: &[u32],
        each: usize,
    ) -> Result<Option<Vec<u32>>> {
        let mut watched = self.watched();
        let Some(replayed) = watched.replayed.get(layer).cloned() else {
            return Ok(None);
        };
        if replayed.len() != own.len() {
            bail!("{layer} chooses {} experts, and {} are replayed", own.len(), replayed.len());
        }
        // A recomputed block chooses once more.
        if !watched.loads.contains_key(layer) {
            let tokens = own.chunks(each).zip(replayed.chunks(each));
            let others = |(own, replayed): (&[u32], &[u32])| {
                own.iter().filter(|&expert| !replayed.contains(expert)).count() as u64
            };
            watched.others += tokens.map(others).sum::<u64>();
        }
        Ok(Some(replayed))
    }

    /// Notes what `layer` has chosen by `logits` [.., E], and returns the logits with the
    /// auxiliary losses' gradient behind them.
    pub(super) fn watch(
        self: &Arc<Balance>,
        layer: &str,
        logits: &Activation,
        chosen: &[u32],
        scores: Scores,
    ) -> Result<Activation> {
        // A recomputed block chooses once more what it has chosen.
        let is_new = !self.watched().loads.contains_key(layer);
        if is_new {
            let load = self.load(logits, chosen, scores)?;
            self.watched().note(layer, load);
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

    fn load(&self, logits: &Activation, chosen: &[u32], kind: Scores) -> Result<Load> {
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
        for row in logits.numbers().chunks_exact(experts) {
            let Row { parts, log_sum, .. } = Row::of(row, kind);
            scores.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            z += log_sum * log_sum;
        }
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
        let (parts, shared_by) = match (self.auxiliary.scope, watched.loads.get(layer)) {
            (_, None) => return Vec::new(),
            (Scope::Layer, Some(load)) => (load.parts.clone(), load.each()),
            (Scope::Model, _) => watched.mean(),
        };
        let factor = self.auxiliary.coefficient * parts.len() as f64 / shared_by;
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
}

impl Watched {
    fn note(&mut self, layer: &str, load: Load) {
        let more = [&load.parts[..], &[1.0]].concat();
        self.sums.resize(more.len(), 0.0);
        self.sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        self.loads.insert(layer.to_string(), load);
    }

    /// For each expert its copies for each token, as the mean over layers, and how many layers.
    fn mean(&self) -> (Vec<f64>, f64) {
        let Some((&layers, sums)) = self.sums.split_last() else {
            return (Vec::new(), 1.0);
        };
        (sums.iter().map(|sum| sum / layers).collect(), layers)
    }
}

/// E Σ f_i P_i, with an f that is not divided by k.
fn balancing(parts: &[f64], scores: &[f64]) -> f64 {
    let sum: f64 = parts.iter().zip(scores).map(|(part, score)| part * score).sum();
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

    const CHOSEN: [u32; 8] = [0, 1, 0, 2, 1, 0, 0, 1];

    /// Two experts for each of two tokens, of which the second would have another one.
    #[test]
    fn choices_that_are_replayed_take_the_place_of_own_ones() {
        let balance = Balance::new(Auxiliary::default());
        let own = [0, 1, 0, 2];
        assert_eq!(balance.replayed("first", &own, 2).unwrap(), None);
        assert_eq!(balance.others(), 0);
        let replayed = vec![1, 0, 0, 1];
        balance.replay([("first".to_string(), replayed.clone())].into());
        assert_eq!(balance.replayed("first", &own, 2).unwrap(), Some(replayed));
        assert_eq!(balance.others(), 1);
        let error = balance.replayed("first", &own[..2], 2).unwrap_err().to_string();
        assert!(error.contains("chooses 2 experts, and 4 are replayed"), "{error}");
    }

    #[test]
    fn parts_of_all_layers_count_equally() {
        let load = |parts: [f64; 2]| Load {
            chosen: Vec::new(),
            copies: Vec::new(),
            kept: Vec::new(),
            scores: Vec::new(),
            tokens: 2,
            parts: parts.to_vec(),
            z: 0.0,
        };
        let balance = Balance::default();
        let mut watched = balance.watched();
        watched.note("first", load([2.0, 0.0]));
        watched.note("second", load([0.5, 1.5]));
        assert_eq!(watched.mean(), (vec![1.25, 0.75], 2.0));
    }

    fn logits() -> Vec<f32> {
        (0..12).map(|i| ((i * i % 7) as f32 - 3.0) / 2.0).collect()
    }

    /// The auxiliary losses of two layers, which see the same 4 tokens of 3 experts, and the
    /// gradient of the first one's logits in a backward pass of `factor` times nothing.
    fn run(auxiliary: Auxiliary, scores: Scores, first: &[f32], factor: f64) -> (f64, Vec<f32>) {
        let balance = Balance::new(auxiliary);
        let of = |numbers: &[f32]| Activation::start(numbers.to_vec(), (4, 3)).unwrap();
        let x = of(first);
        let watched = balance.watch("first", &x, &CHOSEN, scores).unwrap();
        let mut others = CHOSEN;
        others.swap(2, 7);
        // Once more, as by a recomputed block: what it has chosen first counts.
        balance.watch("first", &x, &[2; 8], scores).unwrap();
        balance.watch("second", &of(&logits()), &others, scores).unwrap();
        balance.scale(factor);
        let mut gradients = watched.backward(vec![0.0; 12], None).unwrap();
        (balance.weighted(), gradients.of(&x).unwrap())
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
        let x = Activation::new(vec![0.0; 12], (4, 3)).unwrap();
        balance.watch("alone", &x, &CHOSEN, Scores::Softmax).unwrap();
        let load = &balance.loads()["alone"];
        assert_eq!((load.copies.as_slice(), load.tokens), (&[4, 3, 1][..], 4));
        assert!((balance.loss() - 1.0).abs() < 1e-12);
        // transformers does not divide by the two experts of each token.
        let pooled = Balance::new(auxiliary(Scope::Model));
        pooled.watch("alone", &x, &CHOSEN, Scores::Softmax).unwrap();
        assert!((pooled.loss() - 2.0).abs() < 1e-12);
        assert!((load.z - 3f64.ln().powi(2)).abs() < 1e-12);
    }
}
