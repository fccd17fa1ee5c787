//! The flags of a training in fp16.

use crate::skipping::{ScalerConfig, ScalerRule};
use kit::flags::{positive, whole};
use kit::help;

/// Good steps before the scale grows. The projects' default is 1,000, which is longer than this
/// lab's run.
const WINDOW: usize = 25;

/// The loss scale of a training in fp16.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Half precision")]
pub struct ScalingFlags {
    /// Train once with gradients in fp16, and scale the loss
    #[arg(long, conflicts_with_all = ["dtype", "reduce_dtype", "train_range_to_skip", "policy", "print_tokens", "log", "metrics", "trace", "stall"], help_heading = help::TRAINING)]
    pub fp16: bool,
    /// The rule that updates the loss scale
    #[arg(
        long,
        value_enum,
        value_name = "RULE",
        default_value = "megatron",
        requires = "fp16",
        hide_short_help = true
    )]
    pub scaler: ScalerRule,
    /// The first loss scale is 2^N [default: the rule's: 32 for megatron, 16 for DeepSpeed's]
    #[arg(long, value_name = "N", requires = "fp16", value_parser = whole(0..=127), hide_short_help = true)]
    pub initial_scale_power: Option<usize>,
    /// Good steps before the loss scale grows
    #[arg(long, value_name = "STEPS", default_value_t = WINDOW, requires = "fp16", value_parser = positive(), hide_short_help = true)]
    pub window: usize,
}

impl ScalingFlags {
    /// The rule, its first scale and its window.
    pub fn config(&self) -> ScalerConfig {
        let defaults = self.scaler.defaults();
        let initial = self
            .initial_scale_power
            .map_or(defaults.initial, |power| 2f64.powi(power as i32));
        ScalerConfig { initial, window: self.window as u64, ..defaults }
    }
}
