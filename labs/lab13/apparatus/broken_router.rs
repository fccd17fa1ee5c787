//! A router with a mistake in it.

use candle_core::{D, Device, Result, Tensor};
use shardlab::model::{Layer, Mixture, Pass};

/// Experts whose results are weighted by what selected them: scores with biases.
pub struct BiasedWeights(pub Mixture);

impl Layer for BiasedWeights {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (chosen, log_scores) = self.0.route(x, pass)?;
        let mut weights = log_scores.exp()?;
        if let Some(bias) = &self.0.bias {
            let all = bias.value()?;
            let biases: Vec<f32> = chosen.iter().map(|&expert| all[expert as usize]).collect();
            weights = (&weights + Tensor::from_vec(biases, weights.dims(), &Device::Cpu)?)?;
        }
        if self.0.rules.normalized {
            weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        }
        weights = (weights * self.0.rules.selection.factor)?;
        self.0.mix(x, &chosen, &weights, pass)
    }
}
