//! The models, written once. A model composes layers that it is given, so a sharded layer can
//! replace a plain one.
//!
//! Reading order: `layers.rs` (the layers), `decoder.rs` (the whole model, or one pipeline stage),
//! `gpt.rs` and `llama.rs` (the blocks of two families), `build.rs` (the makers of layers),
//! `generate.rs` (text from a GPT), `mlp.rs` (linear layers only, for the smallest job).

mod build;
mod decoder;
mod generate;
mod gpt;
mod layers;
mod llama;
mod mlp;

pub use build::{Build, Plain, Role, Tiled};
pub use decoder::{Chunk, Decoder, Input, Positions};
pub use generate::{draw, generate};
pub use layers::{
    Attend, Attention, Block, Embedding, Entry, Exit, Head, Heads, Layer, LayerNorm, Linear,
    Linears, Mlp, Pass, RmsNorm, TiledLinear,
};
pub use mlp::LinearStack;

/// A decoder whose shape is a GPT's, as labs 02 to 09 train it.
pub type Gpt = Decoder;

/// A decoder whose shape is a Llama's, as lab10 trains and runs it.
pub type Llama = Decoder;
