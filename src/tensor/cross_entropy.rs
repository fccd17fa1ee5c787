//! Cross-entropy: how little the model expected the token that came next.

use super::math::{exp, exp_sum, max, vectorized};
use super::operation::{Operand, TensorOp, apply, rows};
use candle_core::{Result, Shape, bail};
use std::sync::OnceLock;

/// A target that counts neither in a loss nor in its gradient, such as a prompt's token in
/// fine-tuning.
pub const IGNORED: u32 = u32::MAX;

/// The number of targets that count.
pub(crate) fn counted(targets: &[u32]) -> usize {
    targets.iter().filter(|&&target| target != IGNORED).count()
}

/// Whether there is one target for each of `rows` rows, and each is a token or [`IGNORED`].
pub(crate) fn fit(targets: &[u32], rows: usize, vocabulary: usize) -> bool {
    targets.len() == rows
        && targets
            .iter()
            .all(|&target| target == IGNORED || (target as usize) < vocabulary)
}

/// The mean of `-ln softmax(logits)[target]` over all rows of `logits` [.., V], in nats: a
/// scalar. Rows whose target is [`IGNORED`] do not count.
///
/// # Errors
/// If there is not one target for each row, a target is not in the vocabulary, or all are ignored.
pub fn cross_entropy<X: Operand>(logits: &X, targets: &[u32]) -> Result<X> {
    apply(logits, CrossEntropy { targets: targets.to_vec(), log_sums: OnceLock::new() })
}

struct CrossEntropy {
    targets: Vec<u32>,
    /// The logarithm of the sum of e^logit, for every row.
    log_sums: OnceLock<Vec<f32>>,
}

impl TensorOp for CrossEntropy {
    const NAME: &'static str = "cross-entropy";

    fn forward(&self, logits: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (n, vocabulary) = rows(dims)?;
        if !fit(&self.targets, n, vocabulary) {
            bail!(
                "{n} rows of {vocabulary} logits need {n} targets below {vocabulary}, got {}",
                self.targets.len()
            );
        }
        let mut log_sums = vec![0.0; n];
        vectorized!((logits, vocabulary, &mut log_sums[..]), log_sum_exp);
        let rows = log_sums.iter().zip(logits.chunks_exact(vocabulary)).zip(&self.targets);
        let losses = rows.filter(|(_, target)| **target != IGNORED);
        // The sum is f64: the mean must not depend on how many rows a batch has.
        let sum: f64 = losses
            .map(|((log_sum, logits), &target)| f64::from(log_sum - logits[target as usize]))
            .sum();
        self.log_sums.set(log_sums).ok();
        Ok((vec![(sum / counted(&self.targets).max(1) as f64) as f32], Shape::from(())))
    }

    /// `(softmax(logits) - one_hot(target)) / rows`
    fn input_gradient(&self, logits: &[f32], dims: &[usize], dloss: &[f32]) -> Result<Vec<f32>> {
        let log_sums = self.log_sums.get().map(Vec::as_slice).unwrap_or_default();
        let scale = dloss[0] / counted(&self.targets).max(1) as f32;
        let (_, vocabulary) = rows(dims)?;
        let mut dlogits = vec![0.0; logits.len()];
        vectorized!((logits, vocabulary, log_sums, scale, &mut dlogits[..]), softmax,);
        for (row, &target) in dlogits.chunks_exact_mut(vocabulary).zip(&self.targets) {
            match target {
                IGNORED => row.fill(0.0),
                _ => row[target as usize] -= scale,
            }
        }
        Ok(dlogits)
    }
}

/// Computes the logarithm of each row's sum of e^logit.
#[inline(always)]
fn log_sum_exp((logits, vocabulary, log_sums): (&[f32], usize, &mut [f32])) {
    let mut row = vec![0.0; vocabulary];
    for (logits, log_sum) in logits.chunks_exact(vocabulary).zip(log_sums) {
        row.copy_from_slice(logits);
        let top = max(&row);
        *log_sum = top + exp_sum(&mut row, top).ln();
    }
}

/// Computes each row's softmax times `scale`.
#[inline(always)]
fn softmax((logits, vocabulary, log_sums, scale, out): (&[f32], usize, &[f32], f32, &mut [f32])) {
    let rows = out.chunks_exact_mut(vocabulary).zip(logits.chunks_exact(vocabulary));
    for ((out, logits), log_sum) in rows.zip(log_sums) {
        out.iter_mut()
            .zip(logits)
            .for_each(|(p, logit)| *p = scale * exp(logit - log_sum));
    }
}
