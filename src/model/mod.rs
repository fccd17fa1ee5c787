//! The models, written once: compositions of layers that are handed in, so that a sharded layer can take a plain one's
//! place.
//!
//! Reading order: `layers.rs` (the parts), `gpt.rs` (the whole), `generate.rs` (text from a model);
//! `mlp.rs` (linear layers only, for the smallest job).

mod generate;
mod gpt;
mod layers;
mod mlp;

pub use generate::generate;
pub use gpt::Gpt;
pub use layers::{Attention, Block, Embedding, Layer, LayerNorm, Linear, Mlp, Pass, TiledLinear};
pub use mlp::LinearStack;
