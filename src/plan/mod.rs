//! Arithmetic before anything is allocated or sent. No tensors.
//!
//! GPT-2 XL on 8 ranks in mixed precision: gigabytes per rank in each of ZeRO's stages, and seconds
//! of one all-reduce of its gradients over 10 Gbit/s Ethernet:
//!
//! ```
//! use shardlab::comm::Link;
//! use shardlab::comm::algorithms::{Algorithm, Task};
//! use shardlab::plan::{BytesEach, ModelShape, Network, simulate, zero_memory};
//!
//! let gpt2_xl = ModelShape::gpt2(48, 1600, 25, 50257, 1024);
//! let numel = gpt2_xl.parameters();
//! let gigabytes = [0, 1, 2, 3].map(|stage| {
//!     let bytes: u64 = zero_memory(stage, numel, 8, BytesEach::MIXED).iter().sum();
//!     (bytes as f64 / 1e8).round() / 10.0
//! });
//! assert_eq!(gigabytes, [24.9, 8.6, 5.8, 3.1]);
//!
//! let ethernet = Network::uniform(Link { latency: 24e-6, bandwidth: 1.25e9 });
//! let ring = Task::of_all_reduce(Algorithm::Ring, 8, numel as usize, 2)?;
//! let seconds = simulate(&ring[0], 2, &ethernet);
//! assert!((seconds - 4.4).abs() < 0.1, "{seconds}");
//! # anyhow::Ok(())
//! ```
//!
//! Reading order:
//!
//! - `shape.rs`: a model's shape; its parameters by name, their number on a rank, FLOPs
//! - `activations.rs`: the memory of a rank that trains a GPT without other ranks
//! - `kept.rs`: what one block keeps for its backward pass
//! - `network.rs` and `simulate.rs`: what it would take on a network that is not here, by a formula
//!   and round by round
//! - `overlap.rs`: how much of the communication the backward pass hides
//! - `zero.rs`: what ZeRO's stages hold, send and take
//! - `shards.rs`: what ranks hold and keep when tensor ranks and pipeline stages share a model

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
    BlockParameter, Capacity, Dense, Drops, Experts, Family, Groups, LlamaExtra, ModelShape, Named,
    Part, Portion, Rope, RopeScaling, Scores, Selection,
};
pub use shards::Shards;
pub use simulate::simulate;
pub use zero::{
    BytesEach, ZeroVolumes, zero_memory, zero_memory_offloaded, zero_traffic, zero_volumes,
};
