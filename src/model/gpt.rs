//! The blocks of nanoGPT's GPT, with layer norms and without biases. The shape lists their
//! parameters.

use super::build::{Build, Role, selecting_bias, whole};
use super::experts::Mixture;
use super::layers::{Attention, Block, Heads, Layer, Mlp};
use crate::plan::ModelShape;
use crate::tensor::{Init, Params};
use candle_core::Result;
use std::ops::Range;
use std::sync::Arc;

/// The standard deviation of initial matrices.
pub(super) const STD: f32 = 0.02;

/// Matrices start normal.
pub(super) fn matrix(std: f32) -> Init {
    Init::Normal(std)
}

/// Matrices start normal with standard deviation 0.02. The deviation is 0.02 / √(2 · layers) for
/// matrices that write into the residual stream (Radford et al. 2019). Gains start at 1.
pub(super) fn blocks(
    shape: &ModelShape,
    params: &Arc<Params>,
    layers: Range<usize>,
    build: &dyn Build,
) -> Result<Vec<Box<dyn Layer>>> {
    let residual_std = STD / (2.0 * shape.layers as f32).sqrt();
    let block = |layer: usize| -> Result<Box<dyn Layer>> {
        let name = shape.block_name(layer);
        let whole = |part: &str, init| whole(shape, layer, part, init);
        let norm = |part: &str| build.norm(params, whole(part, Init::Constant(1.0)));
        let linear = |part: &str, std, role| build.linear(params, whole(part, matrix(std)), role);
        let norm1 = norm("ln1.weight")?;
        let norm2 = norm("ln2.weight")?;
        let attention = Attention {
            qkv: linear("qkv.weight", STD, Role::AttentionIn)?,
            proj: linear("proj.weight", residual_std, Role::AttentionOut)?,
            heads: Heads {
                queries: build.heads(shape.heads),
                kv: build.heads(shape.heads).len(),
            },
            name: name.clone(),
        };
        let mlp = |prefix: &str| -> Result<Box<dyn Layer>> {
            Ok(Box::new(Mlp {
                fc: linear(&format!("{prefix}fc.weight"), STD, Role::MlpIn)?,
                out: linear(&format!("{prefix}out.weight"), residual_std, Role::MlpOut)?,
                name: name.clone(),
            }))
        };
        let mlp = match shape.experts_of(layer) {
            None => mlp("")?,
            Some(rules) => build.mixture(Mixture {
                router: build.gain(params, whole("router.weight", matrix(STD)))?,
                bias: selecting_bias(&rules, "router", params, &whole, build)?,
                experts: build
                    .experts(rules.count)
                    .map(|expert| mlp(&format!("experts.{expert}.")))
                    .collect::<Result<_>>()?,
                shared: (rules.shared > 0).then(|| mlp("shared.")).transpose()?,
                dispatcher: None,
                rules,
                name: format!("{name}.experts"),
            }),
        };
        Ok(Box::new(Block { norm1, attention: Box::new(attention), norm2, mlp }))
    };
    layers.map(block).collect()
}
