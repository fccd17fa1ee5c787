//! The parts of a transformer.

use crate::tensor::{self, Dropout, Param};
use candle_core::{Result, Tensor};

/// What a forward pass is for.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Whether a backward pass will follow: candle then records the graph.
    pub train: bool,
    /// None: nothing is dropped.
    pub dropout: Option<Dropout>,
}

impl Pass {
    /// To evaluate or generate: no graph, no dropout.
    pub fn evaluate() -> Pass {
        Pass::default()
    }

    fn drop(&self, x: Tensor, place: &str) -> Result<Tensor> {
        match &self.dropout {
            Some(rules) => tensor::dropout(&x, rules, place),
            None => Ok(x),
        }
    }
}

/// A function of activations, with weights of its own: [sequences, length, width] in and out.
pub trait Layer: Send + Sync {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor>;
}

/// `x · Wᵀ`, plus a bias where there is one; also the GPT's head, with the token table as its weight.
pub struct Linear {
    /// `[out, in]`
    pub weight: Param,
    /// `[out]`
    pub bias: Option<Param>,
}

impl Layer for Linear {
    fn forward(&self, x: &Tensor, _pass: &Pass) -> Result<Tensor> {
        match &self.bias {
            None => tensor::linear(x, &self.weight),
            Some(bias) => tensor::linear_bias(x, &self.weight, bias),
        }
    }
}

/// A [`Linear`] whose rows are cut into tiles, each a parameter of its own. Where parameters are gathered for a moment, no more
/// than one tile need be here at a time: DeepSpeed's memory-centric tiling.
pub struct TiledLinear {
    pub tiles: Vec<Linear>,
}

impl Layer for TiledLinear {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let parts: Vec<Tensor> = self.tiles.iter().map(|tile| tile.forward(x, pass)).collect::<Result<_>>()?;
        Tensor::cat(&parts, x.rank() - 1)
    }
}

/// Layer norm with a gain and no bias.
pub struct LayerNorm {
    /// `[width]`
    pub gain: Param,
}

impl Layer for LayerNorm {
    fn forward(&self, x: &Tensor, _pass: &Pass) -> Result<Tensor> {
        tensor::layer_norm(x, &self.gain)
    }
}

/// Token plus position: where sequences enter the model.
pub struct Embedding {
    /// `[vocabulary, width]`
    pub tokens: Param,
    /// `[block, width]`
    pub positions: Param,
}

impl Embedding {
    /// `ids` are sequences of `length` tokens, one after the other: [sequences, length, width].
    pub fn forward(&self, ids: &[u32], length: usize, pass: &Pass) -> Result<Tensor> {
        let x = tensor::embed(ids, length, &self.tokens, pass.train)?;
        pass.drop(tensor::add_positions(x, &self.positions)?, "embedding")
    }
}

/// Self-attention: qkv, the attention itself, and the projection back.
pub struct Attention {
    pub qkv: Box<dyn Layer>,
    pub proj: Box<dyn Layer>,
    /// Heads here, and the number of the first one in the whole layer.
    pub heads: usize,
    pub first_head: usize,
    /// The layer's name, which decides its dropout masks.
    pub name: String,
}

impl Layer for Attention {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let qkv = self.qkv.forward(x, pass)?;
        let dropout = pass.dropout.as_ref().map(|rules| (rules, self.name.as_str()));
        let y = tensor::causal_attention(&qkv, self.heads, self.first_head, dropout)?;
        pass.drop(self.proj.forward(&y, pass)?, &format!("{}.proj", self.name))
    }
}

/// The two-layer perceptron of a block.
pub struct Mlp {
    pub fc: Box<dyn Layer>,
    pub out: Box<dyn Layer>,
    pub name: String,
}

impl Layer for Mlp {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = tensor::gelu(&self.fc.forward(x, pass)?)?;
        pass.drop(self.out.forward(&x, pass)?, &format!("{}.out", self.name))
    }
}

/// A pre-norm transformer block: `x + attention(norm(x))`, then `x + mlp(norm(x))`.
pub struct Block {
    pub norm1: Box<dyn Layer>,
    pub attention: Box<dyn Layer>,
    pub norm2: Box<dyn Layer>,
    pub mlp: Box<dyn Layer>,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = (x + self.attention.forward(&self.norm1.forward(x, pass)?, pass)?)?;
        &x + self.mlp.forward(&self.norm2.forward(&x, pass)?, pass)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Init, Params};
    use candle_core::Device;

    /// Tiles begin as the matrix does, and do what it does.
    #[test]
    fn a_matrix_in_tiles_is_the_matrix() {
        let (whole, tiled) = (Params::new(), Params::new());
        let weight = whole.declare("w", &[6, 5], Init::Normal(1.0)).unwrap();
        let tile = |tile| Linear {
            weight: tiled.declare_tile("w", [6, 5], (tile, 3), Init::Normal(1.0)).unwrap(),
            bias: None,
        };
        let tiles = TiledLinear { tiles: (0..3).map(tile).collect() };
        for params in [&whole, &tiled] {
            params.allocate(7);
        }
        assert_eq!(*whole.values(), *tiled.values());
        let run = |layer: &dyn Layer| {
            let x = candle_core::Var::from_slice(&[0.1f32, -2.0, 3.0, 0.5, 1.0], (1, 1, 5), &Device::Cpu).unwrap();
            let y = layer.forward(x.as_tensor(), &Pass { train: true, dropout: None }).unwrap();
            y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            y.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        assert_eq!(run(&Linear { weight, bias: None }), run(&tiles));
        assert_eq!(*whole.gradients(), *tiled.gradients());
        assert!(whole.gradients().iter().any(|&g| g != 0.0));
    }
}
