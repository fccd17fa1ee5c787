//! A job: a model, the devices that train it, and what a step of it is.

use crate::{Cluster, Program};
use shapes::BytesEach;
use shapes::model::ModelShape;

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
    pub program: Program,
    /// Whether collectives are rings, however many ranks they have.
    pub rings: bool,
}

/// The axes whose communication overlaps with computing. How much of it does is the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// No axis: each collective is waited for, as in this library's tensor and pipeline layers.
    None,
    /// Tensor ranks alone, as in Megatron-LM of 2022.
    Tensor,
    /// The data axis as well: DDP, FSDP, and Megatron-LM since 2023.
    All,
}

/// Tokens of a step that a device computes at most by default: more are rarely needed to keep it
/// busy.
const MOST_TOKENS: usize = 1 << 16;

impl TrainingJob {
    /// A job with today's usual settings: 18 bytes per parameter, FlashAttention, dropout, overlap,
    /// and a batch by size.
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
            program: Program::Megatron,
            rings: false,
        }
    }

    /// Sequences per step, for a model of this size on so many devices.
    ///
    /// Published trainings take more tokens per step for larger models: GPT-3's (arXiv 2005.14165,
    /// table 2.1) 0.5 million for 125 million parameters, 2 million for 6.7 billion and 3.2 million
    /// for 175 billion, and Llama 3 (arXiv 2407.21783) 4 million and more. A power of 0.27 goes
    /// through them. A device computes 65,536 at most, and eight devices share a sequence at least:
    /// Llama 3 had 16 million tokens on 16,384. The odd part of the number of devices divides the
    /// batch, so that replicas get equal shares.
    pub fn usual_batch(model: &ModelShape, devices: usize) -> usize {
        let published = 5e5 * (model.parameters() as f64 / 125e6).powf(0.27);
        let tokens = (published as usize).min(devices * MOST_TOKENS);
        let sequences = tokens.div_ceil(model.block).max(devices / 8);
        let odd = devices.max(1) >> devices.max(1).trailing_zeros();
        odd * sequences.div_ceil(odd).next_power_of_two()
    }

    /// Bytes of an activation's number in memory. This library keeps tensors in f32, and rounds
    /// what it multiplies and sends.
    pub(crate) fn element(&self) -> f64 {
        match self.program {
            Program::Shardlab => BytesEach::F32.parameter as f64,
            _ => self.bytes.parameter as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of a step of published trainings, within a factor of two (a batch is a power of two).
    #[test]
    fn a_batch_is_as_published() {
        let tokens = |layers, embd, heads, devices| {
            let model = ModelShape::gpt2(layers, embd, heads, 50_257, 2048);
            (TrainingJob::usual_batch(&model, devices) * 2048) as f64
        };
        // GPT-3's 125 million, 6.7 billion and 175 billion; BLOOM.
        for (model, devices, published) in [
            ([12, 768, 12], 32, 0.5e6),
            ([32, 4096, 32], 256, 2e6),
            ([96, 12_288, 96], 1024, 3.2e6),
            ([70, 14_336, 112], 384, 4.2e6),
        ] {
            let [layers, embd, heads] = model;
            let ratio = tokens(layers, embd, heads, devices) / published;
            assert!((0.5..=2.0).contains(&ratio), "{model:?}: {ratio}");
        }
        // Nobody trains 7 billion on eight devices with 4 million tokens a step.
        assert_eq!(tokens(32, 4096, 32, 8), 8.0 * 65_536.0);
        // Llama 3 405B on 16,384, and an odd number of devices.
        let llama = shapes::llamas::named("llama-3.1-405b").unwrap();
        let llama = ModelShape { block: 8192, ..llama };
        assert_eq!(TrainingJob::usual_batch(&llama, 16_384), 2048);
        assert!(TrainingJob::usual_batch(&llama, 24).is_multiple_of(3));
    }
}
