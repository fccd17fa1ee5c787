//! A transformer's parameters and FLOPs.
//!
//! Sources: Narayanan et al. (arXiv 2104.04473), equations 2 and 3; Korthikanti et al. (arXiv 2205.05198), equation 7.

use crate::plan::{GptShape, LlamaShape};

/// Which layers a model has, and what they keep for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// GPT-2 and GPT-3: learned positions, biases, GELU, dropout.
    Gpt,
    /// Rotary positions, no biases, SwiGLU, no dropout.
    Llama,
    /// This library's GPT: learned positions, no biases, and dropout or none.
    Here { dropout: bool },
}

/// The numbers that define a transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    pub family: Family,
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Inner width of the MLP.
    pub ffn: usize,
    pub vocabulary: usize,
    /// Tokens of a sequence in training.
    pub length: usize,
    /// Whether the head is the token table.
    pub tied: bool,
}

impl Model {
    /// A GPT with an MLP that is four times as wide as the model.
    pub const fn gpt(
        layers: usize,
        width: usize,
        heads: usize,
        vocabulary: usize,
        length: usize,
    ) -> Model {
        let kv_heads = heads;
        let ffn = 4 * width;
        Model {
            family: Family::Gpt,
            layers,
            width,
            heads,
            kv_heads,
            ffn,
            vocabulary,
            length,
            tied: true,
        }
    }

    /// A Llama. It trains on sequences of `length` tokens, which is often less than the longest that it can read.
    pub fn llama(shape: &LlamaShape, length: usize) -> Model {
        let &LlamaShape {
            layers,
            embd: width,
            heads,
            kv_heads,
            ffn,
            vocabulary,
            tied,
            ..
        } = shape;
        Model {
            family: Family::Llama,
            layers,
            width,
            heads,
            kv_heads,
            ffn,
            vocabulary,
            length,
            tied,
        }
    }

    /// This library's GPT.
    pub fn here(shape: &GptShape, dropout: bool) -> Model {
        let gpt = Model::gpt(
            shape.layers,
            shape.embd,
            shape.heads,
            shape.vocabulary,
            shape.block,
        );
        Model {
            family: Family::Here { dropout },
            ..gpt
        }
    }

    /// Width of all keys of a position, and of all its values.
    pub fn kv_width(&self) -> usize {
        self.width / self.heads * self.kv_heads
    }

    /// Parameters of one layer's matrices, which tensor ranks divide.
    pub fn matrices(&self) -> f64 {
        let h = self.width as f64;
        let kv = self.kv_width() as f64;
        let mlp = if self.family == Family::Llama {
            3.0
        } else {
            2.0
        };
        2.0 * h * h + 2.0 * h * kv + mlp * h * self.ffn as f64
    }

    /// Parameters of one layer's norms and biases. Every tensor rank is taken to hold them all: they are few.
    pub fn vectors(&self) -> f64 {
        let h = self.width as f64;
        match self.family {
            Family::Gpt => 4.0 * h + 3.0 * h + 2.0 * self.kv_width() as f64 + self.ffn as f64,
            Family::Llama | Family::Here { .. } => 2.0 * h,
        }
    }

    /// Parameters of the token table.
    pub fn table(&self) -> f64 {
        (self.vocabulary * self.width) as f64
    }

    /// Parameters of the learned positions.
    pub fn positions(&self) -> f64 {
        if self.family == Family::Llama {
            0.0
        } else {
            (self.length * self.width) as f64
        }
    }

    /// Parameters of the last norm.
    fn last_norm(&self) -> f64 {
        if self.family == Family::Gpt {
            2.0 * self.width as f64
        } else {
            self.width as f64
        }
    }

    pub fn parameters(&self) -> f64 {
        let tables = if self.tied { 1.0 } else { 2.0 };
        let layers = self.layers as f64 * (self.matrices() + self.vectors());
        layers + tables * self.table() + self.positions() + self.last_norm()
    }

    /// Parameters of the largest layer: a block, or the token table.
    pub fn largest_layer(&self) -> f64 {
        (self.matrices() + self.vectors()).max(self.table())
    }

    /// Parameters on each rank of a pipeline stage with `layers` layers. The first stage has the token table, the last one the
    /// head: its own copy, unless both are on one stage and tied.
    pub fn on_a_rank(&self, layers: usize, tensor: usize, first: bool, last: bool) -> f64 {
        let t = tensor as f64;
        let table = self.vocabulary.next_multiple_of(tensor) as f64 / t * self.width as f64;
        let tables = match (first, last) {
            (true, true) if !self.tied => 2.0,
            (false, false) => 0.0,
            _ => 1.0,
        };
        let positions = if first { self.positions() } else { 0.0 };
        let norm = if last { self.last_norm() } else { 0.0 };
        layers as f64 * (self.matrices() / t + self.vectors()) + tables * table + positions + norm
    }

    /// FLOPs of one layer's forward pass for one token: 2 for each parameter of its matrices, and attention's two products with
    /// all positions. (No discount for causality: so the papers count.)
    pub fn forward_flops(&self) -> f64 {
        2.0 * self.matrices() + self.attention_flops()
    }

    /// Attention's part of [`Model::forward_flops`].
    pub fn attention_flops(&self) -> f64 {
        4.0 * (self.length * self.width) as f64
    }

    /// FLOPs of the head's forward pass for one token.
    pub fn head_flops(&self) -> f64 {
        2.0 * self.table()
    }

    /// Model FLOPs of training on one token: the backward pass takes twice as many as the forward pass.
    pub fn flops_per_token(&self) -> f64 {
        3.0 * (self.layers as f64 * self.forward_flops() + self.head_flops())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_two_shapes_have_the_same_counts() {
        let shape = GptShape {
            vocabulary: 65,
            block: 256,
            layers: 6,
            heads: 6,
            embd: 384,
        };
        assert_eq!(
            Model::here(&shape, false).parameters(),
            shape.parameters() as f64
        );
        // nanoGPT counts gains with the matrices. They are 2 h of each layer's 12 h².
        let is = Model::here(&shape, false).flops_per_token();
        let says = shape.flops_per_token() as f64;
        assert!((is / says - 1.0).abs() < 1e-3, "{is}, {says}");
        for (name, shape) in crate::plan::PRESETS {
            let model = Model::llama(shape, shape.block);
            assert_eq!(model.parameters(), shape.parameters() as f64, "{name}");
        }
    }

    /// Equation 7: 72 BLsh² (1 + s/6h + V/12hL).
    #[test]
    fn flops_are_those_of_the_formula() {
        let gpt3 = Model::gpt(96, 12_288, 96, 51_200, 2048);
        let l = 96.0;
        let h = 12_288.0;
        let s = 2048.0;
        let v = 51_200.0;
        let formula = 72.0 * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * l));
        assert!((gpt3.flops_per_token() / formula - 1.0).abs() < 1e-12);
    }

    #[test]
    fn ranks_hold_all_parameters_together() {
        for model in [
            Model::gpt(96, 12_288, 96, 51_200, 2048),
            Model {
                tied: false,
                ..Model::gpt(8, 64, 4, 128, 64)
            },
        ] {
            assert_eq!(
                model.on_a_rank(model.layers, 1, true, true),
                model.parameters()
            );
            let stages = model.on_a_rank(model.layers / 2, 1, true, false)
                + model.on_a_rank(model.layers / 2, 1, false, true);
            let copied = if model.tied { model.table() } else { 0.0 };
            assert_eq!(stages, model.parameters() + copied);
        }
    }
}
