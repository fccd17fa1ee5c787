//! How a router selects a token's experts, and weights what they compute.
//!
//! Each expert has a score: its part of a softmax, or a sigmoid of its own. The highest select. Two
//! things may have a say in that, and none in the weights, which are scores alone:
//!
//! A bias for each expert, which is added to its score. After a step it goes down by 0.001 for
//! experts with more tokens than the mean, and up for those with fewer. So loads become even
//! without a loss that pulls on the scores (Wang et al., arXiv 2408.15664). It is a parameter like
//! others, saved and sharded with them, and its gradient is the load: like a gradient, a load is a
//! sum over micro-batches and ranks. The optimizer takes only its sign. Where gradients are reduced
//! in bf16, each rank's load is rounded to 1 part in 256, so a sign can be wrong only where the
//! ranks' loads, less the mean, cancel to within that part of their sum.
//!
//! Groups, of which only the best count. Experts of the others are masked with -∞. A mask of 0
//! would do for scores alone, which are above 0. But with a bias below 0, an expert that counts can
//! come to stand below those that do not.
//!
//! A capacity drops copies of an expert that too many have chosen: then no rank waits for it long,
//! and some tokens go on without.

use crate::plan::{Drops, Experts, Groups, Scores};
use crate::tensor::{Activation, Param, TensorOp, apply, rows};
use candle_core::{Result, Shape};
use std::collections::BTreeMap;

/// The experts that each row of `logits` [.., E] selects, highest score first.
pub(super) fn select(logits: &Activation, rules: &Experts, bias: Option<&[f32]>) -> Vec<u32> {
    let Experts { count, top_k, selection, .. } = *rules;
    // Scores have the order of their logits, and need not be computed for it.
    let by_scores = selection.groups.is_some() || bias.is_some();
    let mut row = Vec::new();
    let mut places = Vec::new();
    let mut all = Vec::new();
    for logits in logits.numbers().chunks_exact(count) {
        row.clear();
        if by_scores {
            row.extend(log_scores(logits, selection.scores).map(f32::exp));
        } else {
            row.extend_from_slice(logits);
        }
        for (score, bias) in row.iter_mut().zip(bias.unwrap_or_default()) {
            *score += bias;
        }
        if let Some(groups) = selection.groups {
            mask_all_but_the_best(&mut row, groups, &mut places);
        }
        all.extend(highest(&row, top_k, &mut places));
    }
    all
}

/// The logarithms of the scores of the experts `ids`, so many for each row of `logits`
/// [.., E]: [.., k]. A score itself can be too small for a number, and its logarithm
/// still has a gradient.
pub(super) fn log_scores_of(
    logits: &Activation,
    ids: &[u32],
    rules: &Experts,
) -> Result<Activation> {
    let Experts { top_k, selection, .. } = *rules;
    apply(logits, LogScores { ids: ids.to_vec(), top_k, kind: selection.scores })
}

/// By what the results of experts are multiplied, whose scores have these logarithms [.., k].
pub(super) fn weights(log_scores: &Activation, rules: &Experts) -> Result<Activation> {
    let Experts { normalized, selection, .. } = *rules;
    apply(log_scores, Weights { normalized, factor: selection.factor as f32 })
}

/// The largest of the numbers in a softmax, and the sum of all e^(x - largest).
fn softmax_sum(row: &[f32]) -> (f32, f32) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (largest, row.iter().map(|x| (x - largest).exp()).sum())
}

/// For each of a token's logits x the numbers of which its score is e^(x - largest) / sum. A
/// sigmoid is the softmax of a logit beside a 0.
fn scores(row: &[f32], kind: Scores) -> impl Iterator<Item = (f32, f32, f32)> {
    let of_all = softmax_sum(row);
    row.iter().map(move |&x| {
        let (largest, sum) = match kind {
            Scores::Softmax => of_all,
            Scores::Sigmoid => softmax_sum(&[x, 0.0]),
        };
        (x, largest, sum)
    })
}

fn log_scores(row: &[f32], kind: Scores) -> impl Iterator<Item = f32> {
    scores(row, kind).map(|(x, largest, sum)| (x - largest) - sum.ln())
}

/// The logarithms of the scores of chosen experts.
struct LogScores {
    ids: Vec<u32>,
    top_k: usize,
    kind: Scores,
}

impl TensorOp for LogScores {
    const NAME: &'static str = "scores";

    fn forward(&self, logits: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (_, experts) = rows(dims)?;
        let mut y = Vec::with_capacity(self.ids.len());
        for (row, ids) in logits.chunks_exact(experts).zip(self.ids.chunks_exact(self.top_k)) {
            let all: Vec<f32> = log_scores(row, self.kind).collect();
            y.extend(ids.iter().map(|&id| all[id as usize]));
        }
        Ok((y, [&dims[..dims.len() - 1], &[self.top_k]].concat().into()))
    }

    /// A score's logarithm is x - ln(sum): each x has its own gradient, and its part of the sum's.
    fn input_gradient(&self, logits: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (_, experts) = rows(dims)?;
        let mut all = vec![0.0; logits.len()];
        let choices = self.ids.chunks_exact(self.top_k).zip(dy.chunks_exact(self.top_k));
        let tokens = all.chunks_exact_mut(experts).zip(logits.chunks_exact(experts));
        for ((dx, row), (ids, dy)) in tokens.zip(choices) {
            ids.iter().zip(dy).for_each(|(&id, dy)| dx[id as usize] += dy);
            let of_all: f32 = dx.iter().sum();
            for (dx, (x, largest, sum)) in dx.iter_mut().zip(scores(row, self.kind)) {
                let of_sum = match self.kind {
                    Scores::Softmax => of_all,
                    Scores::Sigmoid => *dx,
                };
                *dx -= of_sum / sum * (x - largest).exp();
            }
        }
        Ok(all)
    }
}

/// Weights by the logarithms of scores.
struct Weights {
    normalized: bool,
    factor: f32,
}

impl TensorOp for Weights {
    const NAME: &'static str = "weights";

    /// Normalized, each score is a part of their sum, which can be too small for a number, too.
    fn forward(&self, log_scores: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (_, top_k) = rows(dims)?;
        let weights = log_scores.chunks_exact(top_k).flat_map(|row| {
            let (largest, sum) = if self.normalized { softmax_sum(row) } else { (0.0, 1.0) };
            row.iter().map(move |x| (x - largest).exp() / sum * self.factor)
        });
        Ok((weights.collect(), dims.into()))
    }

    fn input_gradient(&self, log_scores: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (_, top_k) = rows(dims)?;
        let mut all = Vec::with_capacity(log_scores.len());
        for (row, dy) in log_scores.chunks_exact(top_k).zip(dy.chunks_exact(top_k)) {
            let (largest, sum) = if self.normalized { softmax_sum(row) } else { (0.0, 1.0) };
            let scores = row.iter().map(|x| (x - largest).exp());
            let both = scores.zip(dy.iter().map(|dy| dy * self.factor));
            let of_sum = both.clone().map(|(score, dy)| dy * score / (sum * sum)).sum();
            let of_sum: f32 = if self.normalized { of_sum } else { 0.0 };
            all.extend(both.map(|(score, dy)| (dy / sum - of_sum) * score));
        }
        Ok(all)
    }
}

/// Whether each of the choices `chosen` is among the `most` that its expert takes.
pub(super) fn within(most: usize, drops: Drops, chosen: &[u32], weights: &[f32]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..chosen.len()).collect();
    if drops == Drops::Probs {
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a])); // stable
    }
    let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
    let mut kept = vec![false; chosen.len()];
    for choice in order {
        let taken = taken.entry(chosen[choice]).or_default();
        kept[choice] = *taken < most;
        *taken += 1;
    }
    kept
}

/// Returns `logits` [.., E], whose backward pass adds the load of `ids` to the gradient of
/// `bias`.
pub(super) fn count_load(
    logits: &Activation,
    ids: &[u32],
    rules: &Experts,
    bias: &Param,
) -> Result<Activation> {
    // E times the copies above the mean: whole numbers, whose sums have no order.
    let mut above = vec![-(ids.len() as f32); rules.count];
    ids.iter().for_each(|&expert| above[expert as usize] += rules.count as f32);
    above.iter_mut().for_each(|above| *above *= UNIT);
    apply(logits, Counted { bias: bias.handle(), above })
}

/// So small that no norm of gradients has a bit of it.
const UNIT: f32 = f32::MIN_POSITIVE * (1 << 26) as f32;

/// Changes nothing in the forward pass.
struct Counted {
    bias: Param,
    /// For each expert its copies above the mean.
    above: Vec<f32>,
}

impl TensorOp for Counted {
    const NAME: &'static str = "load";
    const HAS_WEIGHTS: bool = true;

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        Ok((x.to_vec(), dims.into()))
    }

    fn input_gradient(&self, _x: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        Ok(dy.to_vec())
    }

    fn weight_gradients(&self, _x: &[f32], _dims: &[usize], _dy: &[f32]) -> Result<()> {
        self.bias.add_gradient(|sum| {
            sum.iter_mut().zip(&self.above).for_each(|(sum, above)| *sum += above);
        })
    }
}

fn mask_all_but_the_best(row: &mut [f32], groups: Groups, places: &mut Vec<u32>) {
    let size = row.len() / groups.count;
    let mut best_two = |group: &[f32]| -> f32 {
        let best = highest(group, size.min(2), places);
        best.iter().map(|&expert| group[expert as usize]).sum()
    };
    let sums: Vec<f32> = row.chunks_exact(size).map(&mut best_two).collect();
    let counting = highest(&sums, groups.top_k, places);
    for (group, scores) in (0..).zip(row.chunks_exact_mut(size)) {
        if !counting.contains(&group) {
            scores.fill(f32::NEG_INFINITY);
        }
    }
}

/// The places of the `count` highest of `numbers`, highest first. Of equal numbers the first is
/// taken. `places` is memory that is used again.
fn highest<'a>(numbers: &[f32], count: usize, places: &'a mut Vec<u32>) -> &'a [u32] {
    places.clear();
    places.extend(0..numbers.len() as u32);
    places.sort_by(|&a, &b| numbers[b as usize].total_cmp(&numbers[a as usize])); // stable
    &places[..count.min(numbers.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::global_norm;
    use crate::plan::{Capacity, Selection};
    use crate::tensor::{Init, Params};

    #[test]
    fn the_highest_come_first_and_of_equals_the_first() {
        let of = |numbers: &[f32], chosen| highest(numbers, chosen, &mut Vec::new()).to_vec();
        assert_eq!(of(&[0.5, 2.0, -1.0, 2.0], 2), [1, 3]);
        assert_eq!(of(&[f32::NEG_INFINITY, -3.0, -3.0, -4.0], 4), [1, 2, 3, 0]);
        assert!(of(&[], 2).is_empty());
    }

    fn rules(top_k: usize, selection: Selection) -> Experts {
        Experts {
            count: 4,
            top_k,
            normalized: false,
            selection,
            ..Experts::default()
        }
    }

    fn selected(logits: &[f32], rules: &Experts, bias: Option<&[f32]>) -> Vec<u32> {
        let shape = (logits.len() / rules.count, rules.count);
        let logits = Activation::new(logits.to_vec(), shape).unwrap();
        select(&logits, rules, bias)
    }

    /// The second group has the best two together, though the first has the best one.
    #[test]
    fn a_group_counts_by_its_best_two() {
        let groups = Some(Groups { count: 2, top_k: 1 });
        let selection = Selection { groups, scores: Scores::Sigmoid, ..Selection::default() };
        assert_eq!(selected(&[2.0, -9.0, 1.5, 1.0], &rules(1, selection), None), [2]);
        // Not by all: the second group has the larger sum of three.
        let of_three = Experts { count: 6, ..rules(1, selection) };
        assert_eq!(selected(&[3.0, 3.0, -9.0, 1.5, 1.5, 1.5], &of_three, None), [0]);
        // A score below 0 that counts is above one that does not.
        let bias = [0.0, 0.0, -1.0, -3.0];
        let logits = [-20.0, -20.0, 9.0, 9.0];
        let groups = Some(Groups { count: 2, top_k: 2 });
        let all = Selection { groups, ..selection };
        assert_eq!(selected(&logits, &rules(2, all), Some(&bias)), [0, 1]);
        let apart = [0.0, -9.0, -1.0, -3.0];
        assert_eq!(selected(&logits, &rules(2, selection), Some(&apart)), [2, 3]);
    }

    #[test]
    fn a_bias_selects_and_does_not_weigh() {
        let logits = Activation::new(vec![0.0, 1.0, 2.0, 3.0], (1, 4)).unwrap();
        let selection = Selection { scores: Scores::Sigmoid, factor: 2.5, ..Selection::default() };
        let rules = rules(2, selection);
        let ids = selected(&[0.0, 1.0, 2.0, 3.0], &rules, Some(&[1.0, 0.0, 0.0, 0.0]));
        assert_eq!(ids, [0, 3]);
        let found = weights(&log_scores_of(&logits, &ids, &rules).unwrap(), &rules).unwrap();
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        for (found, logit) in found.numbers().iter().zip([0.0, 3.0]) {
            assert!((found - 2.5 * sigmoid(logit)).abs() < 1e-6, "{found}");
        }
    }

    /// The weights of the experts `ids` of four `logits`, and the gradient of the logits where the
    /// first weight counts once, the second twice.
    fn weighed(logits: [f32; 4], ids: [u32; 2], rules: &Experts) -> (Vec<f32>, Vec<f32>) {
        let x = Activation::start(logits.to_vec(), (1, 4)).unwrap();
        let weights = weights(&log_scores_of(&x, &ids, rules).unwrap(), rules).unwrap();
        let found = weights.numbers().to_vec();
        (found, weights.backward(vec![1.0, 2.0], None).unwrap().of(&x).unwrap())
    }

    /// The same in f64, with the formulas of the definition.
    fn weighed_by_hand(logits: [f32; 4], ids: [u32; 2], rules: &Experts) -> (Vec<f64>, Vec<f64>) {
        let of = |logits: [f64; 4]| {
            let softmax: f64 = logits.iter().map(|x| x.exp()).sum();
            let score = |id: u32| match (logits[id as usize], rules.selection.scores) {
                (x, Scores::Softmax) => x.exp() / softmax,
                (x, Scores::Sigmoid) => 1.0 / (1.0 + (-x).exp()),
            };
            let scores = ids.map(score);
            let sum = if rules.normalized { scores[0] + scores[1] } else { 1.0 };
            scores.map(|score| score / sum)
        };
        let logits = logits.map(f64::from);
        let slope = |i: usize| {
            let moved = |by: f64| {
                let mut logits = logits;
                logits[i] += by;
                let [first, second] = of(logits);
                first + 2.0 * second
            };
            (moved(1e-4) - moved(-1e-4)) / 2e-4
        };
        (of(logits).to_vec(), (0..4).map(slope).collect())
    }

    /// However far below 0 logits are, also that of an expert that nobody chose, and however far
    /// the chosen ones are below others, as a bias or a group can choose them.
    #[test]
    fn no_logit_is_too_far_from_0() {
        for scores in [Scores::Softmax, Scores::Sigmoid] {
            for normalized in [false, true] {
                let selection = Selection { scores, ..Selection::default() };
                let rules = Experts { normalized, ..rules(2, selection) };
                for far in [-1.0, -20.0, -52.0, -88.7, -89.0, -104.0, -300.0, 89.0, 300.0] {
                    for logits in [
                        [far, 1.0, 0.5, 0.0],
                        [far, far + 0.5, 0.0, 1.0],
                        [far, far, far - 1.0, far + 1.0],
                    ] {
                        for ids in [[1, 2], [0, 1], [3, 0]] {
                            let case = (scores, normalized, logits, ids);
                            let (weights, slopes) = weighed(logits, ids, &rules);
                            let (expected, right) = weighed_by_hand(logits, ids, &rules);
                            let both = weights.iter().chain(&slopes);
                            for (found, expected) in both.zip(expected.iter().chain(&right)) {
                                let apart = (f64::from(*found) - expected).abs();
                                // The rounding of a logarithm near 300.
                                assert!(apart < 2e-5, "{case:?}: {found} {expected}");
                            }
                        }
                    }
                }
            }
        }
    }

    /// Expert 0 takes two of its three copies, and expert 1 both.
    #[test]
    fn a_capacity_drops_what_is_last_or_lightest() {
        let chosen = [0, 1, 0, 1, 2, 0];
        let weights = [0.1, 0.9, 0.6, 0.4, 0.7, 0.3];
        let dropped = |drops| {
            let kept = within(2, drops, &chosen, &weights);
            (0..6).filter(|&choice| !kept[choice]).collect::<Vec<_>>()
        };
        assert_eq!(dropped(Drops::Position), [5]);
        assert_eq!(dropped(Drops::Probs), [0]);
        assert_eq!(within(0, Drops::Position, &chosen, &weights), [false; 6]);
        let capacity = Capacity { factor: 1.25, drops: Drops::Position };
        assert_eq!(capacity.most(10, &rules(2, Selection::default())), 7); // of 6.25
    }

    /// Three of six copies for the first expert, none for the last: 6 above the mean and 6 below,
    /// in units that a norm does not see.
    #[test]
    fn a_load_is_a_gradient_without_a_norm() {
        let params = Params::new();
        let bias = params.declare("bias", &[4], Init::Constant(0.0)).unwrap();
        params.allocate(0);
        let ids = [0, 1, 0, 2, 0, 1];
        let pass = || {
            let x = Activation::start(vec![0.0; 12], (3, 4)).unwrap();
            let y = count_load(&x, &ids, &rules(2, Selection::default()), &bias).unwrap();
            y.backward(vec![1.0; 12], None).unwrap();
        };
        pass();
        let of_one = [6.0, 2.0, -2.0, -6.0].map(|above| above * UNIT);
        assert_eq!(*params.gradients(), of_one);
        // The loads of micro-batches add up.
        pass();
        let gradients = params.gradients();
        assert_eq!(*gradients, of_one.map(|load| 2.0 * load));
        let with = [&gradients[..], &[0.1; 4]].concat();
        assert_eq!(global_norm(&with), global_norm(&[0.1, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0]));
    }
}
