//! The flags of mixed precision, as PyTorch's `MixedPrecisionPolicy` names its settings.

use super::one_of;
use crate::help;
use shardlab::tensor::Precision;

/// The types of a run's numbers.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::TRAINING)]
pub struct PrecisionFlags {
    /// The type of parameters, of what matrix products read, and of activations that ranks send
    #[arg(long, value_parser = one_of::<Precision>(), default_value = Precision::default().name())]
    pub dtype: Precision,
    /// The type in which gradients are kept, and summed between ranks
    #[arg(long, value_name = "DTYPE", value_parser = one_of::<Precision>(), default_value = Precision::default().name(), hide_short_help = true)]
    pub reduce_dtype: Precision,
}
