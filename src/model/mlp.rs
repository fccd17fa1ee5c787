//! A stack of linear layers: the smallest model worth distributing. It trains fast enough to watch.

use super::layers::{Layer, Linear, Pass};
use crate::tensor::{self, Activation, Init, Params};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// Linear layers with biases, without anything between them.
///
/// Without a nonlinearity, their product is one matrix, which can learn no more than a single
/// layer. But computing and communicating the layers costs as much as in a real model, and this
/// cost is what the stack is for.
pub struct LinearStack {
    pub params: Arc<Params>,
    /// First to last.
    pub layers: Vec<Box<dyn Layer>>,
    /// Numbers per sample.
    width: usize,
}

impl LinearStack {
    /// Declares a layer from each of `widths` to the next. [`Params::allocate`] gives them weights.
    ///
    /// Weights and biases start uniform within ±1 / √in, as in PyTorch.
    ///
    /// # Errors
    /// Never: each layer has its own name.
    pub fn new(widths: &[usize]) -> Result<LinearStack> {
        let params = Params::new();
        let layer = |(i, sizes): (usize, &[usize])| -> Result<Box<dyn Layer>> {
            let ins = sizes[0];
            let outs = sizes[1];
            let init = Init::Uniform(1.0 / (ins as f32).sqrt());
            let weight = params.declare(format!("layers.{i}.weight"), &[outs, ins], init)?;
            let bias = params.declare(format!("layers.{i}.bias"), &[outs], init)?;
            Ok(Box::new(Linear { weight, bias: Some(bias) }))
        };
        let layers = widths.windows(2).enumerate().map(layer).collect::<Result<_>>()?;
        Ok(LinearStack { params, layers, width: widths.first().copied().unwrap_or(0) })
    }

    /// Sends `x`, samples of the first width, through all layers: [samples, last width].
    ///
    /// The backward pass also computes the input's gradient, at the cost of one product in the
    /// first layer.
    ///
    /// # Errors
    /// If `x` does not consist of whole samples, or the parameters are not allocated.
    pub fn forward(&self, x: &[f32]) -> Result<Activation> {
        let samples = x.len() / self.width.max(1);
        let mut x = Activation::start(x.to_vec(), (samples, self.width))?;
        for layer in &self.layers {
            x = layer.forward(&x, &Pass::training(None))?;
        }
        Ok(x)
    }

    /// The squared error of reconstructing `x`, summed over its samples: a scalar. First and last
    /// width must be equal.
    ///
    /// # Errors
    /// As [`LinearStack::forward`], and if the last width is not the first.
    pub fn loss(&self, x: &[f32]) -> Result<Tensor> {
        tensor::root(tensor::squared_error(&self.forward(x)?, x)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_gets_a_gradient() {
        let stack = LinearStack::new(&[3, 5, 2, 3]).unwrap();
        stack.params.allocate(1);
        let names: Vec<String> =
            stack.params.specs().iter().map(|spec| spec.name.clone()).collect();
        assert_eq!(names[..3], ["layers.0.weight", "layers.0.bias", "layers.1.weight"]);
        assert_eq!(stack.params.numel(), 15 + 5 + 10 + 2 + 6 + 3);
        stack.loss(&[0.1, 0.2, 0.3, 0.9, 0.8, 0.7]).unwrap().backward().unwrap();
        assert!(stack.params.gradients().iter().all(|&g| g != 0.0));
    }

    #[test]
    fn biases_start_within_their_own_layers_bound() {
        let stack = LinearStack::new(&[100, 400, 100]).unwrap();
        stack.params.allocate(1);
        for (spec, bound) in stack.params.specs().iter().zip([0.1f32, 0.1, 0.05, 0.05]) {
            let largest =
                stack.params.values()[spec.range()].iter().fold(0f32, |a, b| a.max(b.abs()));
            assert!(largest <= bound && largest > 0.9 * bound, "{}: {largest}", spec.name);
        }
    }
}
