//! Adds what candle lacks for training on a CPU.
//!
//! candle supplies the tensor, and walks the graph of what is not one chain (`chain.rs`). This
//! folder supplies the operations that the models are composed of, each with its own backward
//! pass. An operation is fused where a composition would be slow (GELU, norm, attention) or where
//! candle cuts the graph. No operation is fused across a point where tensor parallelism has to
//! communicate.
//!
//! Reading order: `params.rs` (where weights live: the idea that later labs build on) and
//! `whole.rs` (which tensor a shard was cut from), `slices.rs` (which positions a rank holds).
//! Operations: `linear.rs` (the pattern that all of them follow), `gelu.rs`, `layer_norm.rs` (with
//! `gain.rs`), `embedding.rs`, `attention.rs`, `block_attention.rs` (keys come block by block),
//! `cross_entropy.rs`, `squared_error.rs`, `dropout.rs`. A Llama's: `rms_norm.rs`, `rope.rs`,
//! `swiglu.rs`, `stacked.rs` (several matrices at once); for generating, `few_rows.rs`. Backward
//! passes in pieces, for pipelines: `defer.rs` (in time) and `boundary.rs` (in space); and
//! `recompute.rs`, which trades time for memory. For experts: `routed.rs`. Tools: `graph.rs`
//! (makes an operation a node of the graph), `chain.rs` (makes several operations one node),
//! `in_place.rs` (what changes a tensor in its own memory), `stored.rs` (the types of stored
//! numbers), `rounded.rs` (activations in bf16), `random.rs`, `matmul.rs`, `math.rs`, `profile.rs`
//! (the time that each operation took).

mod attention;
mod block_attention;
mod boundary;
mod chain;
mod cross_entropy;
mod defer;
mod dropout;
mod embedding;
mod few_rows;
mod gain;
mod gelu;
mod graph;
mod in_place;
mod layer_norm;
mod linear;
pub mod math;
pub mod matmul;
mod params;
pub mod profile;
pub mod random;
mod recompute;
mod rms_norm;
mod rope;
mod rounded;
mod routed;
mod slices;
mod squared_error;
mod stacked;
pub mod stored;
mod swiglu;
mod whole;

pub use attention::{causal_attention, grouped_attention};
pub use block_attention::{BlockAttention, Documents, Rows, Running};
pub use boundary::{backward_from, gradient};
pub use candle_core::{Device, Tensor};
pub use chain::{chain, residual};
pub use cross_entropy::{IGNORED, cross_entropy};
pub(crate) use cross_entropy::{counted, fit};
pub use defer::{Deferred, defer};
pub use dropout::{Dropout, dropout};
pub use embedding::{add_positions, embed};
pub use gelu::gelu;
pub use graph::{TensorOp, apply, consume, read, rows};
pub use layer_norm::layer_norm;
pub use linear::{linear, linear_bias};
pub use params::{
    FlatGuard, FlatLayout, Gradients, Group, Hook, Listener, Param, Params, ShardedGradients,
    ShardedValues, Spec, Storage, Value, Values, ValuesMut,
};
pub use random::Init;
pub use recompute::recompute;
pub use rms_norm::rms_norm;
pub use rope::{Rotations, rope};
pub use rounded::round_to_bf16;
pub use routed::{by_parts, picked, weighted_sums};
pub use slices::Slices;
pub use squared_error::squared_error;
pub use stacked::{linears, linears_of_few_rows};
pub use stored::{Numbers, Precision, Stored};
pub use swiglu::swiglu;
pub use whole::{Copies, Cut, Whole};
