//! Arithmetic before anything is allocated or sent. No tensors. Reading order:
//!
//! - `gpt.rs`: parameters, memory and FLOPs of a model
//! - `llama.rs`: parameters, FLOPs and names of a Llama, models by name
//! - `formula.rs`: what an algorithm costs, in symbols
//! - `network.rs` and `simulate.rs`: what it would take on a network that is not here
//! - `overlap.rs`: how much of the communication the backward pass hides
//! - `zero.rs`: what ZeRO's stages hold, send and take
//! - `tensor.rs`: what tensor ranks hold, keep and send
//! - `megatron.rs`: what ranks hold when tensor and pipeline ranks divide a model, and Megatron-LM's estimate of it
//! - `strategy/`: what a strategy costs, and the best one for a job
//! - `activity.rs`: what a rank does when
//! - `bandwidth.rs`: how fast it is, in the field's terms

mod activity;
mod bandwidth;
mod formula;
mod gpt;
mod llama;
mod megatron;
mod network;
mod overlap;
mod simulate;
pub mod strategy;
mod tensor;
mod zero;

pub use activity::{Activity, Interval};
pub use bandwidth::{AlphaBeta, algbw, array_bytes, busbw};
pub use formula::{Formula, formula};
pub use gpt::{GptShape, Keep, Memory};
pub use llama::{LlamaShape, Named, PRESETS, Rope, RopeScaling};
pub use megatron::{Estimate, ModelShards, ParameterBytes};
pub use network::{MOST_RANKS, Network};
pub use overlap::{exposed, tokens_that_hide};
pub use simulate::simulate;
pub use tensor::TensorShards;
pub use zero::{
    BytesEach, ComputedStep, zero_memory, zero_memory_offloaded, zero_step, zero_traffic,
    zero_volumes,
};
