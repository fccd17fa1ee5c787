//! Adds what candle lacks for training on a CPU.
//!
//! candle supplies the tensor, and functions of it. This folder supplies the operations that the
//! models are composed of, each with its own backward pass, and the tape on which a forward pass
//! notes them. An operation is fused where a composition would be slow (GELU, norm, attention). No
//! operation is fused across a point where tensor parallelism has to communicate.
//!
//! Letters in shapes: S sequences of L tokens, D the width of the model, F the inner width of an
//! MLP, H heads, V tokens of the vocabulary, E experts, k of them for each token.
//!
//! Reading order: `tape.rs` (what a backward pass is), `params.rs` (where weights live: the idea
//! that later labs build on) and `whole.rs` (which tensor a shard was cut from). Operations:
//! `operation.rs` (how one gets onto the tape), `linear.rs` (the pattern that all of them follow),
//! `gelu.rs`, `layer_norm.rs` (with `gain.rs`), `embedding.rs`, `attention.rs`,
//! `block_attention.rs` (keys come block by block), `cross_entropy.rs`, `squared_error.rs`,
//! `dropout.rs`. A Llama's: `rms_norm.rs`, `rope.rs`, `swiglu.rs`, `stacked.rs` (several matrices
//! at once); for generating, `few_rows.rs`. For experts: `routed.rs`; `recompute.rs` trades time
//! for memory. `node.rs` is the way to candle's graph and back, for lessons and notebooks. Tools:
//! `stored.rs` (the types of stored numbers), `rounded.rs` (activations in bf16), `random.rs`,
//! `matmul.rs`, `math.rs`, `profile.rs` (the time that each operation took).

mod attention;
mod block_attention;
mod cross_entropy;
mod dropout;
mod embedding;
mod few_rows;
mod gain;
mod gelu;
mod layer_norm;
mod linear;
pub mod math;
pub mod matmul;
mod node;
mod operation;
mod params;
pub mod profile;
pub mod random;
mod recompute;
mod rms_norm;
mod rope;
mod rounded;
mod routed;
mod squared_error;
mod stacked;
pub mod stored;
mod swiglu;
mod tape;
mod whole;

pub use attention::{causal_attention, grouped_attention};
pub use block_attention::{BlockAttention, Documents, Rows, Running};
pub use candle_core::{Device, Tensor};
pub use cross_entropy::{IGNORED, cross_entropy};
pub(crate) use cross_entropy::{counted, fit};
pub use dropout::{Dropout, dropout};
pub use embedding::{add_positions, embed};
pub use gelu::gelu;
pub use layer_norm::layer_norm;
pub use linear::{linear, linear_bias};
pub use node::{node, root};
pub use operation::{Operand, TensorOp, apply, consume, read, rows};
pub use params::{
    FlatGuard, FlatLayout, Gradients, Group, Hook, Listener, Param, Params, ShardedGradients,
    ShardedValues, Spec, Storage, Value, Values, ValuesMut,
};
pub use random::Init;
pub use recompute::recompute;
pub use rms_norm::rms_norm;
pub use rope::{Rotations, rope};
pub use rounded::round_to_bf16;
pub use routed::{Route, by_parts, picked, weighted_sums};
pub use shapes::strategy::Slices;
pub use squared_error::squared_error;
pub use stacked::{linears, linears_of_few_rows};
pub use stored::{Numbers, Precision, Stored};
pub use swiglu::swiglu;
pub use tape::{Activation, Deferred, InputGradients, Tape, side_by_side, sum};
pub use whole::{Copies, Cut, Whole};
