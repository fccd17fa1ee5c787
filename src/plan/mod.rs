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
//! What follows from a shape alone lies in the package `shapes`, below this library, and is known
//! here by the same names. `simulate.rs` computes a collective round by round on a network that is
//! not here.

mod simulate;

pub use shapes::model::{
    BlockParameter, Capacity, Dense, Drops, Experts, Family, Groups, LlamaExtra, ModelShape, Named,
    Part, Portion, Rope, RopeScaling, Scores, Selection,
};
pub use shapes::network::{self, MOST_RANKS, Network};
pub use shapes::{
    AttentionScores, BytesEach, DropoutMasks, Kept, Memory, Shards, ZeroVolumes, exposed,
    zero_memory, zero_memory_offloaded, zero_traffic, zero_volumes,
};
pub use simulate::simulate;
