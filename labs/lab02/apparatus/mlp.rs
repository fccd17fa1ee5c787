//! The smallest job: a stack of linear layers learns to reconstruct random numbers. This file has
//! its settings.
//!
//! The job is the source's `test_dist`: the same shape, optimizer, batch and loss.

use anyhow::Result;
use kit::does_not_fit;
use shardlab::data::Uniform;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::model::LinearStack;
use shardlab::optim::{AdamW, AdamWConfig};
use shardlab::tensor::Params;
use std::path::PathBuf;

/// Numbers per sample, and the outputs of each layer. The last layer's outputs are the
/// reconstruction.
const WIDTHS: [usize; 6] = [128, 1024, 512, 256, 128, 128];

/// PyTorch's Adam: AdamW without weight decay.
const ADAM: AdamWConfig = AdamWConfig { beta2: 0.999, weight_decay: 0.0, ..AdamWConfig::NANOGPT };

/// The settings of a run of the smallest job.
#[derive(Clone, Debug)]
pub struct MlpConfig {
    pub ranks: usize,
    pub steps: usize,
    pub warmup_iters: usize,
    pub log_interval: usize,
    /// Samples per rank and iteration.
    pub batch: usize,
    pub lr: f64,
    pub seed: u64,
    pub out: PathBuf,
}

impl MlpConfig {
    /// Numbers per sample, and the outputs of each layer.
    pub fn widths(&self) -> &'static [usize] {
        &WIDTHS
    }

    /// Declares the model. [`Params::allocate`] gives it weights.
    pub fn model(&self) -> Result<LinearStack> {
        Ok(LinearStack::new(&WIDTHS)?)
    }

    /// The number of weights and biases of all layers.
    pub fn parameters(&self) -> usize {
        WIDTHS.windows(2).map(|sizes| sizes[1] * (sizes[0] + 1)).sum()
    }

    /// The seed of a rank's own initial weights, before rank 0's replace them.
    pub fn seed_of(&self, rank: usize) -> u64 {
        self.seed.wrapping_add(rank as u64)
    }

    /// The samples of one rank.
    pub fn inputs(&self, rank: usize) -> Uniform {
        Uniform { seed: self.seed, rank, batch: self.batch, width: WIDTHS[0] }
    }

    pub fn adam(&self, params: &Params) -> AdamW {
        AdamW::new(ADAM, params)
    }

    /// The same optimizer in candle-nn: Adam, for its AdamW is told not to decay.
    pub fn plain_adam(&self) -> candle_nn::ParamsAdamW {
        candle_nn::ParamsAdamW {
            lr: self.lr,
            beta1: ADAM.beta1,
            beta2: ADAM.beta2,
            eps: ADAM.epsilon,
            weight_decay: ADAM.weight_decay,
        }
    }

    /// Samples that one iteration learns from, over all ranks.
    pub fn samples(&self) -> usize {
        self.ranks * self.batch
    }

    /// FLOPs per rank and iteration: one product forward and two backward, each with 2 FLOPs per
    /// weight and sample.
    pub fn flops(&self) -> f64 {
        let weights: usize = WIDTHS.windows(2).map(|sizes| sizes[1] * sizes[0]).sum();
        6.0 * weights as f64 * self.batch as f64
    }

    /// Bytes that a rank holds: parameters, gradients, Adam's two moments, and activations with
    /// their gradients.
    pub fn memory(&self) -> [u64; 4] {
        let n = size_of::<f32>() as u64;
        let parameters = n * self.parameters() as u64;
        let activations = 2 * n * self.batch as u64 * WIDTHS.iter().sum::<usize>() as u64;
        [parameters, parameters, 2 * parameters, activations]
    }

    /// Bytes that the ranks on this machine hold together, with room for gradients in flight.
    pub fn total_memory(&self) -> u64 {
        launch::ranks_here(self.ranks) as u64
            * (self.memory().iter().sum::<u64>() + 2 * self.memory()[0])
    }

    /// Refuses a run that does not fit into `free` bytes.
    pub fn ensure_fits(&self, free: u64) -> Result<(), BadInput> {
        if self.total_memory() <= free {
            return Ok(());
        }
        let help = "give fewer --ranks or a smaller --batch";
        Err(does_not_fit(self.ranks, self.batch, self.total_memory(), free, help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::MlpFlags;

    fn config(edit: impl Fn(&mut MlpFlags)) -> Result<MlpConfig, BadInput> {
        #[derive(clap::Parser)]
        struct Args {
            #[command(flatten)]
            flags: MlpFlags,
        }
        let mut flags = <Args as clap::Parser>::parse_from(["test"]).flags;
        edit(&mut flags);
        flags.resolve(flags.ranks.unwrap_or(4), "lab02")
    }

    #[test]
    fn the_arithmetic_is_the_models() {
        let config = config(|_| ()).unwrap();
        assert_eq!(config.parameters(), config.model().unwrap().params.numel());
        assert_eq!((config.parameters(), config.samples()), (837_632, 256));
        assert_eq!(config.flops(), 6.0 * 835_584.0 * 64.0);
    }

    #[test]
    fn the_largest_run_that_is_accepted_does_not_overflow() {
        let config = config(|flags| (flags.ranks, flags.batch) = (Some(1024), 1 << 20)).unwrap();
        let refusal = config.ensure_fits(1 << 40).unwrap_err();
        assert!(
            refusal.what.starts_with("1024 ranks with --batch 1048576 take 18."),
            "{}",
            refusal.what
        );
        assert!(config.ensure_fits(u64::MAX).is_ok());
    }
}
