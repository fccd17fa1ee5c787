//! The models, written once. A model composes layers that it is given, so a sharded layer can replace a plain one.
//!
//! Reading order: `layers.rs` (the layers), `gpt.rs` (the whole model, or one pipeline stage), `build.rs` (the makers
//! of layers), `generate.rs` (text from a model), `mlp.rs` (linear layers only, for the smallest job).

mod build;
mod generate;
mod gpt;
mod layers;
mod mlp;

pub use build::{Build, Plain, Role, Tiled};
pub use generate::generate;
pub use gpt::{Chunk, Gpt, Input};
pub use layers::{Attention, Block, Embedding, Entry, Exit, Head, Layer, LayerNorm, Linear, Mlp, Pass, TiledLinear};
pub use mlp::LinearStack;
