//! Token and position embedding: where numbers enter the model.

use super::graph::{Op, apply};
use super::params::Param;
use candle_core::{DType, Device, Result, Shape, Tensor, Var, bail};

/// Row `ids[s][t]` of `tokens` [vocabulary, width] plus row t of `positions` [block, width], for sequences of `length`
/// tokens: [sequences, length, width].
///
/// With `train`, candle records the graph from here on; without, nothing is kept.
pub fn embed(ids: &[u32], length: usize, tokens: &Param, positions: &Param, train: bool) -> Result<Tensor> {
    let op = Embed { ids: ids.to_vec(), length, tokens: tokens.handle(), positions: positions.handle() };
    // candle records operations, and visits them in the backward pass, only above a variable. The weights are not
    // variables here but handles, so the graph hangs on this one, which takes no part in the arithmetic.
    if train {
        apply(Var::zeros((), DType::F32, &Device::Cpu)?.as_tensor(), op)
    } else {
        apply(&Tensor::zeros((), DType::F32, &Device::Cpu)?, op)
    }
}

struct Embed {
    ids: Vec<u32>,
    length: usize,
    tokens: Param,
    positions: Param,
}

impl Op for Embed {
    const NAME: &'static str = "embedding";

    fn forward(&self, _anchor: &[f32], _dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (vocabulary, width) = (self.tokens.spec().shape[0], self.tokens.spec().shape[1]);
        let block = self.positions.spec().shape[0];
        if self.length == 0 || self.length > block || !self.ids.len().is_multiple_of(self.length) {
            bail!("{} tokens are not sequences of 1 to {block}: {} each", self.ids.len(), self.length);
        }
        if let Some(id) = self.ids.iter().find(|&&id| id as usize >= vocabulary) {
            bail!("token {id} is outside the vocabulary of {vocabulary}");
        }
        let (tokens, positions) = (self.tokens.value()?, self.positions.value()?);
        let mut y = Vec::with_capacity(self.ids.len() * width);
        for (i, &id) in self.ids.iter().enumerate() {
            let token = &tokens[id as usize * width..][..width];
            let position = &positions[i % self.length * width..][..width];
            y.extend(token.iter().zip(position).map(|(token, position)| token + position));
        }
        Ok((y, (self.ids.len() / self.length, self.length, width).into()))
    }

    fn backward(&self, anchor: &[f32], _dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let width = self.tokens.spec().shape[1];
        let add = |sum: &mut [f32], dy: &[f32]| sum.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
        let rows = || self.ids.iter().zip(dy.chunks_exact(width)).enumerate();
        self.positions.add_gradient(|sum| {
            rows().for_each(|(i, (_, dy))| add(&mut sum[i % self.length * width..][..width], dy));
        })?;
        self.tokens.add_gradient(|sum| {
            rows().for_each(|(_, (&id, dy))| add(&mut sum[id as usize * width..][..width], dy));
        })?;
        Ok(anchor.to_vec())
    }
}
