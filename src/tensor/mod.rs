//! What candle lacks for training on a CPU.
//!
//! candle gives the tensor and the backward pass over the graph; these operations, each with a backward pass of its own,
//! are what the models are made of. They are fused where composing them would be slow (GELU, norm, attention) or where
//! candle cuts the graph, and never across a point where tensor parallelism has to communicate.
//!
//! Reading order: `params.rs` (where weights live: the idea that later labs build on), `whole.rs` (what they are parts of),
//! `linear.rs` (the pattern that all operations follow), `gelu.rs`, `layer_norm.rs`, `embedding.rs`, `attention.rs`, `cross_entropy.rs`, `squared_error.rs`,
//! `dropout.rs`; `plain.rs` has the same operations composed from candle's own. Backward passes in pieces, for pipelines:
//! `defer.rs` (in time), `boundary.rs` (in space). Below: `graph.rs` (what makes an operation), `stored.rs` (in which types),
//! `random.rs`, `matmul.rs`, `math.rs`, `profile.rs` (the time that each operation took).

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
pub mod plain;
pub mod profile;
pub mod random;
mod squared_error;
pub mod stored;
mod whole;

pub use attention::causal_attention;
pub use boundary::{backward_from, gradient};
pub use candle_core::Tensor;
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
pub use squared_error::squared_error;
pub use stored::{Numbers, Precision, Stored};
pub use whole::{Copies, Cut, Whole};
