//! The job that all stages do.

use shardlab::parallel::ZeroConfig;
use shardlab::parallel::zero::Offload;
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The job that all stages do.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Parameters of the model: Ψ.
    pub numel: u64,
    pub ranks: usize,
    pub micro_steps: usize,
    pub precision: Precision,
    /// Where the optimizer's state, and in stage 3 parameters, are, if not in the rank's own
    /// memory.
    pub offloaded: Option<&'static str>,
}

impl Job {
    pub fn of(config: &Config, zero: &ZeroConfig) -> Job {
        let numel = config.shape.parameters();
        let precision = zero.precision;
        let offloaded = zero.offload.as_ref().map(|offload| match offload {
            Offload::Host => "on the host",
            Offload::Files(_) => "in files",
        });
        Job {
            numel,
            ranks: config.ranks,
            micro_steps: config.grad_accum,
            precision,
            offloaded,
        }
    }
}
