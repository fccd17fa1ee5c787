//! Adds what candle lacks for training on a CPU.
//!
//! candle supplies the tensor and the backward pass over the graph. This folder supplies the operations that the models
//! are composed of, each with its own backward pass. An operation is fused where a composition would be slow (GELU,
//! norm, attention) or where candle cuts the graph. No operation is fused across a point where tensor parallelism has
//! to communicate.
//!
//! Reading order: `params.rs` (where weights live: the idea that later labs build on) and `whole.rs` (which tensor a
//! shard was cut from). Operations: `linear.rs` (the pattern that all of them follow), `gelu.rs`, `layer_norm.rs`,
//! `embedding.rs`, `attention.rs`, `cross_entropy.rs`, `squared_error.rs`, `dropout.rs`. Backward passes in pieces, for
//! pipelines: `defer.rs` (in time) and `boundary.rs` (in space); and `recompute.rs`, which trades time for memory. Tools: `graph.rs` (makes an operation a node of the
//! graph), `stored.rs` (the types of stored numbers), `random.rs`, `matmul.rs`, `math.rs`, `profile.rs` (the time that
//! each operation took).

mod attention;
mod boundary;
mod cross_entropy;
mod defer;
mod dropout;
mod embedding;
mod gelu;
mod graph;
mod layer_norm;
mod linear;
pub mod math;
pub mod matmul;
mod params;
pub mod profile;
pub mod random;
mod recompute;
mod squared_error;
pub mod stored;
mod whole;

pub use attention::causal_attention;
pub use boundary::{backward_from, gradient};
pub use candle_core::{Device, Tensor};
pub use cross_entropy::cross_entropy;
pub use defer::{Deferred, defer};
pub use dropout::{Dropout, dropout};
pub use embedding::{add_positions, embed};
pub use gelu::gelu;
pub use graph::read;
pub(crate) use graph::{Op, apply, consume, rows};
pub use layer_norm::layer_norm;
pub use linear::{linear, linear_bias};
pub use params::{Collect, Gather, Group, Home, Hook, Layout, Listener, Param, Params, Spec, Value};
pub use random::Init;
pub use recompute::recompute;
pub use squared_error::squared_error;
pub use stored::{Numbers, Precision, Stored};
pub use whole::{Copies, Cut, Whole};
