//! The job that all stages do.

use shardlab::parallel::ZeroConfig;
use shardlab::parallel::zero::Offload;
use shardlab::plan::BytesEach;
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The job that all stages do.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Parameters of the model: Ψ.
    pub numel: u64,
    pub ranks: usize,
    pub micro_steps: usize,
    /// The types of parameters and of gradients.
    pub precision: Precision,
    pub reduce: Precision,
    /// Where the optimizer's state, and in stage 3 parameters, are, if not in the rank's own
    /// memory.
    pub offloaded: Option<&'static str>,
}

impl Job {
    pub fn of(config: &Config, zero: &ZeroConfig) -> Job {
        let numel = config.shape.parameters();
        let offloaded = zero.offload.as_ref().map(|offload| match offload {
            Offload::Host => "on the host",
            Offload::Files(_) => "in files",
        });
        Job {
            numel,
            ranks: config.ranks,
            micro_steps: config.grad_accum,
            precision: zero.precision,
            reduce: zero.reduce,
            offloaded,
        }
    }

    /// Bytes per parameter: the parameter, its gradient, and its optimizer state.
    pub fn bytes_each(&self) -> BytesEach {
        self.precision.bytes_each(self.reduce)
    }
}
