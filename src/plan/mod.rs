//! Arithmetic before anything is allocated or sent. No tensors. Reading order:
//!
//! - `shape.rs`: a model's shape; its parameters by name, their number on a rank, FLOPs
//! - `activations.rs`: the memory of a rank that trains a GPT without other ranks
//! - `kept.rs`: what one block keeps for its backward pass
//! - `network.rs` and `simulate.rs`: what it would take on a network that is not here, by a formula
//!   and round by round
//! - `overlap.rs`: how much of the communication the backward pass hides
//! - `zero.rs`: what ZeRO's stages hold, send and take
//! - `shards.rs`: what ranks hold, keep and send when tensor ranks and pipeline stages share a
//!   model

mod activations;
mod kept;
pub mod network;
mod overlap;
mod shape;
mod shards;
mod simulate;
mod zero;

pub use activations::Memory;
pub use kept::{AttentionScores, DropoutMasks, Kept};
pub use network::{MOST_RANKS, Network};
pub use overlap::exposed;
#[cfg(test)]
pub(crate) use shape::tests::stories260k;
pub use shape::{
    BlockParameter, Dense, Family, LlamaExtra, ModelShape, Named, Portion, Rope, RopeScaling,
};
pub use shards::Shards;
pub use simulate::simulate;
pub use zero::{
    BytesEach, ZeroVolumes, zero_memory, zero_memory_offloaded, zero_traffic, zero_volumes,
};
