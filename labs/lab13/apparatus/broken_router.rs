//! A router with a mistake in it.

use candle_core::{Result, Shape};
use shardlab::model::{Layer, Mixture, Pass};
use shardlab::tensor::{Activation, TensorOp, apply, rows};

/// Experts whose results are weighted by what selected them: scores with biases.
pub struct BiasedWeights(pub Mixture);

impl Layer for BiasedWeights {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let (chosen, log_scores) = self.0.route(x, pass)?;
        let mut biases = vec![0.0; chosen.len()];
        if let Some(bias) = &self.0.bias {
            let all = bias.value()?;
            biases = chosen.iter().map(|&expert| all[expert as usize]).collect();
        }
        let rules = &self.0.rules;
        let factor = rules.selection.factor as f32;
        let weights = Weights { biases, normalized: rules.normalized, factor };
        self.0.mix(x, &chosen, &apply(&log_scores, weights)?, pass)
    }
}

/// Weights of scores whose logarithms are given.
struct Weights {
    /// Of each choice.
    biases: Vec<f32>,
    normalized: bool,
    factor: f32,
}

impl Weights {
    /// Of the scores `log_scores` of one token, and of their gradients `dy`, if there are some:
    /// the weights, or the gradients of the logarithms.
    fn of(&self, log_scores: &[f32], biases: &[f32], dy: Option<&[f32]>) -> Vec<f32> {
        let biased = log_scores.iter().zip(biases).map(|(log, bias)| log.exp() + bias);
        let biased: Vec<f32> = biased.collect();
        let sum = if self.normalized { biased.iter().sum() } else { 1.0 };
        let Some(dy) = dy else {
            return biased.iter().map(|score| self.factor * score / sum).collect();
        };
        let of_sum: f32 = dy.iter().zip(&biased).map(|(dy, score)| dy * score / sum).sum();
        let of_sum = if self.normalized { of_sum } else { 0.0 };
        let of_score = |(dy, log): (&f32, &f32)| self.factor * (dy - of_sum) / sum * log.exp();
        dy.iter().zip(log_scores).map(of_score).collect()
    }
}

impl TensorOp for Weights {
    const NAME: &'static str = "weights";

    fn forward(&self, log_scores: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (_, chosen) = rows(dims)?;
        let tokens = log_scores.chunks(chosen).zip(self.biases.chunks(chosen));
        Ok((tokens.flat_map(|(log, bias)| self.of(log, bias, None)).collect(), dims.into()))
    }

    fn input_gradient(&self, log_scores: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (_, chosen) = rows(dims)?;
        let tokens = log_scores.chunks(chosen).zip(self.biases.chunks(chosen));
        let both = tokens.zip(dy.chunks(chosen));
        Ok(both.flat_map(|((log, bias), dy)| self.of(log, bias, Some(dy))).collect())
    }
}
