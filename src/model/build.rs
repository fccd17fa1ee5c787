//! The makers of a model's layers. A model names its layers. A builder decides the kind of each
//! layer on this rank: plain, in tiles, or sharded among ranks.

use super::experts::Mixture;
use super::layers::{
    Embedding, Entry, Exit, Head, Layer, LayerNorm, Linear, Linears, RmsNorm, TiledLinear,
};
use crate::plan::{Experts, ModelShape};
use crate::tensor::{Copies, Cut, Init, Param, Params, Whole};
use candle_core::Result;
use std::ops::Range;
use std::sync::Arc;

/// The role of a matrix in its block. It decides how a strategy cuts the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// From the residual stream to queries, keys and values: three stacked parts, each with the
    /// rows of all heads. Tensor parallelism gives a rank the rows of its heads (column-parallel,
    /// because `x` is multiplied by the transpose).
    AttentionIn,
    /// From the heads back to the residual stream. Tensor parallelism gives a rank the columns of
    /// its heads (row-parallel).
    AttentionOut,
    /// The MLP's first matrix: column-parallel.
    MlpIn,
    /// The MLP's second matrix: row-parallel.
    MlpOut,
}

/// A parameter of block `layer`, by its name inside of the block.
pub(super) fn whole(shape: &ModelShape, layer: usize, name: &str, init: Init) -> Whole {
    let parameter = shape.block_parameter(layer, name);
    let name = format!("{}.{name}", shape.block_name(layer));
    Whole {
        part: parameter.part,
        ..Whole::new(name, &parameter.dims(), init)
    }
}

/// Declares the bias by which a block's `router` selects, if it has one. `whole` describes a
/// parameter by its name inside of the block.
pub(super) fn selecting_bias(
    rules: &Experts,
    router: &str,
    params: &Arc<Params>,
    whole: &dyn Fn(&str, Init) -> Whole,
    build: &dyn Build,
) -> Result<Option<Param>> {
    let name = format!("{router}.{}", Experts::BIAS);
    let bias = || build.gain(params, whole(&name, Init::Constant(0.0)));
    rules.selection.bias.then(bias).transpose()
}

/// Makes layers, and declares their parameters in `params`. A builder wraps another one, which
/// makes what it does not make itself: [`Plain`] makes everything.
pub trait Build {
    /// The builder that this one wraps.
    fn around(&self) -> &dyn Build {
        &Plain
    }

    /// Makes the layer of one of a block's matrices.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    fn linear(&self, params: &Arc<Params>, whole: Whole, role: Role) -> Result<Box<dyn Layer>> {
        self.around().linear(params, whole, role)
    }

    /// Makes one layer of several matrices that take the same input. Each has its own rows for
    /// every head, or for every part of the MLP's inner width, so that all are column-parallel.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    fn linears(
        &self,
        params: &Arc<Params>,
        wholes: Vec<Whole>,
        role: Role,
    ) -> Result<Box<dyn Layer>> {
        self.around().linears(params, wholes, role)
    }

    /// Declares a parameter that every rank of a tensor group holds whole, such as a norm's gain.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    fn gain(&self, params: &Arc<Params>, whole: Whole) -> Result<Param> {
        self.around().gain(params, whole)
    }

    /// Makes a layer norm; `whole` is its gain.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    fn norm(&self, params: &Arc<Params>, whole: Whole) -> Result<Box<dyn Layer>> {
        Ok(Box::new(LayerNorm { gain: self.gain(params, whole)? }))
    }

    /// Makes an RMSNorm; `whole` is its gain.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    fn rms_norm(&self, params: &Arc<Params>, whole: Whole, epsilon: f32) -> Result<Box<dyn Layer>> {
        Ok(Box::new(RmsNorm { gain: self.gain(params, whole)?, epsilon }))
    }

    /// Declares the token table, which the entry uses, or the head's matrix, or one matrix for
    /// both. `copies` tells whether a second pipeline stage has a copy.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    fn table(&self, params: &Arc<Params>, whole: Whole, copies: Copies) -> Result<Param> {
        self.around().table(params, whole, copies)
    }

    /// Makes the layer that turns tokens into activations. `positions` is the position table of a
    /// model that has one.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    fn entry(
        &self,
        params: &Arc<Params>,
        tokens: Param,
        positions: Option<Whole>,
    ) -> Result<Box<dyn Entry>> {
        self.around().entry(params, tokens, positions)
    }

    /// Makes the layer that turns activations into logits, or into the loss.
    fn exit(&self, tokens: Param) -> Box<dyn Exit> {
        self.around().exit(tokens)
    }

    /// This rank's experts, out of `all` in a block.
    fn experts(&self, all: usize) -> Range<usize> {
        self.around().experts(all)
    }

    /// Makes the layer of a block's experts.
    fn mixture(&self, mixture: Mixture) -> Box<dyn Layer> {
        self.around().mixture(mixture)
    }

    /// This rank's heads, out of `all` in a layer: query heads, or key and value heads.
    fn heads(&self, all: usize) -> Range<usize> {
        self.around().heads(all)
    }
}

fn declare(params: &Arc<Params>, whole: Whole, copies: Copies) -> Result<Param> {
    params.declare_shard(whole.name.clone(), whole, Cut::All, copies)
}

/// Makes plain layers, whole on this rank.
pub struct Plain;

impl Build for Plain {
    fn linear(&self, params: &Arc<Params>, whole: Whole, _: Role) -> Result<Box<dyn Layer>> {
        Ok(Box::new(Linear { weight: declare(params, whole, Copies::One)?, bias: None }))
    }

    fn linears(&self, params: &Arc<Params>, wholes: Vec<Whole>, _: Role) -> Result<Box<dyn Layer>> {
        let declared = wholes.into_iter().map(|whole| declare(params, whole, Copies::One));
        Ok(Box::new(Linears { weights: declared.collect::<Result<_>>()? }))
    }

    fn gain(&self, params: &Arc<Params>, whole: Whole) -> Result<Param> {
        declare(params, whole, Copies::One)
    }

    fn table(&self, params: &Arc<Params>, whole: Whole, copies: Copies) -> Result<Param> {
        declare(params, whole, copies)
    }

    fn entry(
        &self,
        params: &Arc<Params>,
        tokens: Param,
        positions: Option<Whole>,
    ) -> Result<Box<dyn Entry>> {
        let positions = positions.map(|whole| declare(params, whole, Copies::One)).transpose()?;
        Ok(Box::new(Embedding { tokens, positions }))
    }

    fn exit(&self, tokens: Param) -> Box<dyn Exit> {
        Box::new(Head { weight: tokens })
    }

    fn experts(&self, all: usize) -> Range<usize> {
        0..all
    }

    fn mixture(&self, mixture: Mixture) -> Box<dyn Layer> {
        Box::new(mixture)
    }

    fn heads(&self, all: usize) -> Range<usize> {
        0..all
    }
}

/// Cuts each matrix of the MLPs into this many tiles ([`TiledLinear`]). The number must divide the
/// matrix's rows.
pub struct Tiled(pub usize);

impl Build for Tiled {
    fn linear(&self, params: &Arc<Params>, whole: Whole, role: Role) -> Result<Box<dyn Layer>> {
        if self.0 == 1 || !matches!(role, Role::MlpIn | Role::MlpOut) {
            return Plain.linear(params, whole, role);
        }
        let rows = whole.shape[0] / self.0;
        let tile = |tile| {
            let name = format!("{}.tile{tile}", whole.name);
            let cut = Cut::rows(tile * rows..(tile + 1) * rows);
            Ok(Linear {
                weight: params.declare_shard(name, whole.clone(), cut, Copies::One)?,
                bias: None,
            })
        };
        Ok(Box::new(TiledLinear { tiles: (0..self.0).map(tile).collect::<Result<_>>()? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pass;
    use crate::tensor::{Activation, Init};

    /// Tiles begin as the matrix does, and do what it does.
    #[test]
    fn a_matrix_in_tiles_is_the_matrix() {
        let whole = Params::new();
        let tiled = Params::new();
        let matrix = Whole::new("w", &[6, 5], Init::Normal(1.0));
        let plain = Plain.linear(&whole, matrix.clone(), Role::MlpIn).unwrap();
        let tiles = Tiled(3).linear(&tiled, matrix, Role::MlpIn).unwrap();
        for params in [&whole, &tiled] {
            params.allocate(7);
        }
        assert_eq!(tiled.specs().len(), 3);
        assert_eq!(*whole.values(), *tiled.values());
        let run = |layer: &dyn Layer| {
            let x = Activation::start(vec![0.1, -2.0, 3.0, 0.5, 1.0], (1, 1, 5)).unwrap();
            let y = layer.forward(&x, &Pass::training(None)).unwrap();
            let found = y.numbers().to_vec();
            y.backward(found.clone(), None).unwrap();
            found
        };
        assert_eq!(run(&*plain), run(&*tiles));
        assert_eq!(*whole.gradients(), *tiled.gradients());
        assert!(whole.gradients().iter().any(|&g| g != 0.0));
        // Attention's matrices stay whole.
        let others = Params::new();
        let matrix = Whole::new("qkv", &[6, 5], Init::Normal(1.0));
        Tiled(3).linear(&others, matrix, Role::AttentionIn).unwrap();
        assert_eq!(others.specs().len(), 1);
    }
}
