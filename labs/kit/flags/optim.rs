//! Flags for the optimizer: the way in which a step changes the weights.

use super::preset::Defaults;
use super::{is_below_one, is_not_negative, is_positive, number, positive};
use crate::help;
use shardlab::error::BadInput;
use shardlab::optim::AdamWConfig;
use shardlab::train::LrSchedule;

/// Learning rate, AdamW, clipping.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::TRAINING)]
pub struct OptimFlags {
    /// Learning rate after the warm-up
    #[arg(long, value_parser = number::<f64>(is_positive, "a finite number above 0"))]
    pub lr: Option<f64>,
    /// Learning rate at the end of the cosine
    #[arg(long, value_parser = number::<f64>(is_not_negative, "a number from 0 to --lr"), hide_short_help = true)]
    pub min_lr: Option<f64>,
    /// Steps in which the learning rate rises
    #[arg(long, default_value_t = 100, hide_short_help = true)]
    pub warmup: usize,
    /// The step at which the cosine ends [default: --steps]
    #[arg(long, value_parser = positive(), hide_short_help = true)]
    pub lr_decay_steps: Option<usize>,
    /// AdamW's weight decay, on matrices only
    #[arg(long, default_value_t = 0.1, value_parser = number::<f64>(is_not_negative, "0 or more"), hide_short_help = true)]
    pub weight_decay: f64,
    /// AdamW's decay rate of the mean gradient
    #[arg(long, default_value_t = 0.9, value_parser = number::<f64>(is_below_one, "at least 0 and below 1"), hide_short_help = true)]
    pub beta1: f64,
    /// AdamW's decay rate of the mean squared gradient
    #[arg(long, value_parser = number::<f64>(is_below_one, "at least 0 and below 1"), hide_short_help = true)]
    pub beta2: Option<f64>,
    /// Largest global norm of a step's gradients; 0 = off
    #[arg(long, default_value_t = 1.0, value_parser = number::<f64>(is_not_negative, "0 (off) or a finite number above"), hide_short_help = true)]
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
        let min_lr =
            self.min_lr
                .unwrap_or(if self.lr.is_some() { lr / 10.0 } else { defaults.min_lr });
        let decay_steps = self.lr_decay_steps.or(defaults.lr_decay_steps).unwrap_or(steps);
        if min_lr > lr {
            return Err(BadInput::new(
                format!("--min-lr {min_lr} is above the learning rate, {lr}"),
                "give a number from 0 to --lr",
            ));
        }
        let adamw = AdamWConfig {
            beta1: self.beta1,
            beta2: self.beta2.unwrap_or(defaults.beta2),
            weight_decay: self.weight_decay,
            ..AdamWConfig::NANOGPT
        };
        Ok((LrSchedule { lr, min_lr, warmup: self.warmup, decay_steps }, adamw, self.clip))
    }
}
