//! The models, written once: compositions of layers that are handed in, so that a sharded layer can take a plain one's
//! place.
//!
//! Reading order: `layers.rs` (the parts), `gpt.rs` (the whole, or a pipeline stage's share), `build.rs` (who makes the parts),
//! `generate.rs` (text from a model); `mlp.rs` (linear layers only, for the smallest job).

mod build;
mod generate;
mod gpt;
mod layers;
mod mlp;

pub use build::{Build, Plain, Role, Tiled};
pub use generate::generate;
pub use gpt::{Gpt, Input};
pub use layers::{Attention, Block, Embedding, Entry, Exit, Head, Layer, LayerNorm, Linear, Mlp, Pass, TiledLinear};
pub use mlp::LinearStack;
