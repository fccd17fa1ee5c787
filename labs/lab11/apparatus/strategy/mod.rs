//! The cost of a strategy: the memory of a rank, the bytes on each axis, and the time of a step.
//!
//! Arithmetic alone: no tensors, no ranks. Every formula has its source beside it. Reading order:
//!
//! - `device.rs` and `cluster.rs`: devices, and their network
//! - `degrees.rs`: a strategy, and how it is written
//! - `memory.rs`: all bytes of a rank
//! - `traffic.rs`: the bytes on each axis, and their time; `step.rs`: the time of a step
//! - `cost.rs`: tokens per second, MFU, days and money

mod cluster;
mod cost;
mod degrees;
mod device;
mod memory;
mod step;
mod traffic;

pub use cluster::Cluster;
pub use cost::{Cost, TOKENS};
pub use degrees::{Offloaded, Recompute, Strategy};
pub use device::Device;
pub use memory::Load;
pub use step::Time;
pub use traffic::AxisTraffic;

use shardlab::plan::{BytesEach, ModelShape};

/// A model to train, and what it is to be trained on.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingJob {
    pub model: ModelShape,
    pub cluster: Cluster,
    pub devices: usize,
    /// Sequences per step, over all ranks.
    pub batch: usize,
    pub bytes: BytesEach,
    /// Whether attention keeps no scores: FlashAttention (Dao et al., arXiv 2205.14135).
    pub flash: bool,
    /// Whether it trains with dropout, which a Llama never does.
    pub dropout: bool,
    /// The communication that computing hides.
    pub overlap: Overlap,
}

/// The axes whose communication overlaps with computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// No axis: each collective is waited for, as in this library's tensor and pipeline layers.
    None,
    /// Tensor ranks sum a layer's input gradients while they compute its weights' gradients, as in Megatron-LM of 2022.
    Tensor,
    /// The data axis as well: DDP, FSDP, and Megatron-LM since 2023.
    All,
}

impl TrainingJob {
    /// A job with today's usual settings: 18 bytes per parameter, FlashAttention, dropout, overlap, and a batch by size.
    pub fn new(model: ModelShape, cluster: Cluster, devices: usize) -> TrainingJob {
        let batch = TrainingJob::usual_batch(&model, devices);
        TrainingJob {
            model,
            cluster,
            devices,
            batch,
            bytes: BytesEach::MEGATRON,
            flash: true,
            dropout: true,
            overlap: Overlap::All,
        }
    }

    /// About 4 million tokens, as GPT-3's (3.2 million) and Llama 3's (4 million at first), and more on many devices: at least
    /// a sequence for every eight of them. Llama 3 had 16 million tokens on 16,384 devices. The odd part of the number of
    /// devices divides it, so that replicas get equal shares.
    pub fn usual_batch(model: &ModelShape, devices: usize) -> usize {
        let sequences = (1usize << 22).div_ceil(model.block).max(devices / 8);
        let odd = devices.max(1) >> devices.max(1).trailing_zeros();
        odd * sequences.div_ceil(odd).next_power_of_two()
    }

    /// Bytes of an activation's number.
    fn element(&self) -> f64 {
        self.bytes.parameter as f64
    }
}
