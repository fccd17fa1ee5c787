//! Flags for the optimizer: the way in which a step changes the weights.

use super::{ANY, ensure, in_range, is_below_one, is_not_negative};
use shardlab::error::BadInput;
use shardlab::optim::AdamWConfig;
use shardlab::train::{Defaults, LrSchedule};

/// Learning rate, AdamW, clipping.
#[derive(Clone, Debug, clap::Args)]
pub struct OptimFlags {
    /// Learning rate after the warm-up
    #[arg(long)]
    pub lr: Option<f64>,
    /// Learning rate at the end of the cosine
    #[arg(long)]
    pub min_lr: Option<f64>,
    /// Steps in which the learning rate rises
    #[arg(long, default_value_t = 100)]
    pub warmup: usize,
    /// The step at which the cosine ends [default: --steps]
    #[arg(long)]
    pub lr_decay_steps: Option<usize>,
    /// AdamW's weight decay, on matrices only
    #[arg(long, default_value_t = 0.1)]
    pub weight_decay: f64,
    /// AdamW's decay rate of the mean gradient
    #[arg(long, default_value_t = 0.9)]
    pub beta1: f64,
    /// AdamW's decay rate of the mean squared gradient
    #[arg(long)]
    pub beta2: Option<f64>,
    /// Largest global norm of a step's gradients; 0 = off
    #[arg(long, default_value_t = 1.0)]
    pub clip: f64,
}

impl OptimFlags {
    /// The learning rates, the optimizer's settings, and the largest norm, checked.
    pub(super) fn resolve(
        &self,
        defaults: &Defaults,
        steps: usize,
    ) -> Result<(LrSchedule, AdamWConfig, f64), BadInput> {
        let lr = self.lr.unwrap_or(defaults.lr);
        // A tenth of a given --lr, as in the presets. Their own minimum could be above it.
        let min_lr = self.min_lr.unwrap_or(if self.lr.is_some() {
            lr / 10.0
        } else {
            defaults.min_lr
        });
        let decay_steps = self
            .lr_decay_steps
            .or(defaults.lr_decay_steps)
            .unwrap_or(steps);
        let beta1 = self.beta1;
        let beta2 = self.beta2.unwrap_or(defaults.beta2);
        in_range("lr-decay-steps", decay_steps, ANY)?;
        ensure(
            "lr",
            lr,
            lr > 0.0 && lr.is_finite(),
            "a finite number above 0",
        )?;
        ensure(
            "min-lr",
            min_lr,
            is_not_negative(min_lr) && min_lr <= lr,
            "a number from 0 to --lr",
        )?;
        ensure(
            "weight-decay",
            self.weight_decay,
            is_not_negative(self.weight_decay),
            "0 or more",
        )?;
        ensure(
            "beta1",
            beta1,
            is_below_one(beta1),
            "at least 0 and below 1",
        )?;
        ensure(
            "beta2",
            beta2,
            is_below_one(beta2),
            "at least 0 and below 1",
        )?;
        ensure(
            "clip",
            self.clip,
            is_not_negative(self.clip),
            "0 (off) or a finite number above",
        )?;
        let adamw = AdamWConfig {
            beta1,
            beta2,
            epsilon: 1e-8,
            weight_decay: self.weight_decay,
        };
        Ok((
            LrSchedule {
                lr,
                min_lr,
                warmup: self.warmup,
                decay_steps,
            },
            adamw,
            self.clip,
        ))
    }
}
