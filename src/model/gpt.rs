//! nanoGPT's GPT, with learned positions, no biases, and the token table as the head.

use super::build::{Build, Role};
use super::decoder::{Architecture, Decoder};
use super::layers::{Attention, Block, Entry, Layer, Mlp};
use crate::plan::GptShape;
use crate::tensor::{Init, Param, Params, Whole};
use candle_core::Result;
use std::ops::Range;
use std::sync::Arc;

/// A GPT, or a range of its layers.
pub type Gpt = Decoder<GptShape>;

/// The standard deviation of initial matrices.
const STD: f32 = 0.02;

fn matrix(name: &str, rows: usize, columns: usize, std: f32) -> Whole {
    Whole::new(name, &[rows, columns], Init::Normal(std))
}

fn gain(name: &str, width: usize) -> Whole {
    Whole::new(name, &[width], Init::Constant(1.0))
}

/// Matrices start normal with standard deviation 0.02. The deviation is 0.02 / √(2 · layers) for matrices that
/// write into the residual stream (Radford et al. 2019). Gains start at 1.
impl Architecture for GptShape {
    fn layers(&self) -> usize {
        self.layers
    }

    fn width(&self) -> usize {
        self.embd
    }

    fn table(&self) -> Whole {
        matrix("wte.weight", self.vocabulary, self.embd, STD)
    }

    fn entry(
        &self,
        params: &Arc<Params>,
        tokens: Param,
        build: &dyn Build,
    ) -> Result<Box<dyn Entry>> {
        build.entry(
            params,
            tokens,
            Some(matrix("wpe.weight", self.block, self.embd, STD)),
        )
    }

    fn blocks(
        &self,
        params: &Arc<Params>,
        layers: Range<usize>,
        build: &dyn Build,
    ) -> Result<Vec<Box<dyn Layer>>> {
        let d = self.embd;
        let residual_std = STD / (2.0 * self.layers as f32).sqrt();
        let block = |i: usize| -> Result<Box<dyn Layer>> {
            let name = format!("blocks.{i}");
            let norm = |part: &str| build.norm(params, gain(&format!("{name}.{part}.weight"), d));
            let linear = |part: &str, outs, ins, std, role| {
                build.linear(
                    params,
                    matrix(&format!("{name}.{part}.weight"), outs, ins, std),
                    role,
                )
            };
            let norm1 = norm("ln1")?;
            let norm2 = norm("ln2")?;
            let attention = Attention {
                qkv: linear("qkv", 3 * d, d, STD, Role::AttentionIn)?,
                proj: linear("proj", d, d, residual_std, Role::AttentionOut)?,
                heads: build.heads(self.heads),
                name: name.clone(),
            };
            let mlp = Mlp {
                fc: linear("fc", 4 * d, d, STD, Role::MlpIn)?,
                out: linear("out", d, 4 * d, residual_std, Role::MlpOut)?,
                name: name.clone(),
            };
            Ok(Box::new(Block {
                norm1,
                attention: Box::new(attention),
                norm2,
                mlp: Box::new(mlp),
            }))
        };
        layers.map(block).collect()
    }

    fn norm(&self, params: &Arc<Params>, build: &dyn Build) -> Result<Box<dyn Layer>> {
        build.norm(params, gain("lnf.weight", self.embd))
    }
}
