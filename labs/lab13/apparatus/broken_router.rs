//! A router with a mistake in it.

use candle_core::{Device, Result, Tensor};
use shardlab::model::{Layer, Mixture, Pass};

/// Experts whose results are weighted by what selected them: scores with biases.
pub struct BiasedWeights(pub Mixture);

impl Layer for BiasedWeights {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (chosen, mut scores) = self.0.route(x, pass)?;
        if let Some(bias) = &self.0.bias {
            let all = bias.value()?;
            let biases: Vec<f32> = chosen.iter().map(|&expert| all[expert as usize]).collect();
            scores = (scores.clone() + Tensor::from_vec(biases, scores.dims(), &Device::Cpu)?)?;
        }
        self.0.mix(x, &chosen, &scores, pass)
    }
}
