//! The job that all stages do.

use shardlab::parallel::ZeroConfig;
use shardlab::parallel::zero::{Offload, Stage};
use shardlab::plan::{BytesEach, zero_memory};
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The job that all stages do.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Parameters of the model: Ψ.
    pub numel: u64,
    /// Those in matrices that Muon updates: 0 without Muon.
    pub muons: u64,
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
            muons: zero.muon.map_or(0, |_| config.shape.hidden()),
            ranks: config.ranks,
            micro_steps: config.grad_accum,
            precision: zero.precision,
            reduce: zero.reduce,
            offloaded,
        }
    }

    /// Bytes per parameter: the parameter, its gradient, and AdamW's state.
    pub fn bytes_each(&self) -> BytesEach {
        self.precision.bytes_each(self.reduce)
    }

    /// Bytes per parameter in Muon's matrices, which have no second moment.
    pub fn bytes_of_muon(&self) -> BytesEach {
        let each = self.bytes_each();
        BytesEach { optimizer: each.optimizer - 4, ..each }
    }

    /// Bytes of optimizer state per parameter, mean over all.
    pub fn optimizer_mean(&self) -> f64 {
        let [adamw, muon] = [self.bytes_each(), self.bytes_of_muon()].map(|each| each.optimizer);
        (adamw * (self.numel - self.muons) + muon * self.muons) as f64 / self.numel as f64
    }

    /// Bytes of parameters, gradients and optimizer state that a rank holds which updates `owned`
    /// of Muon's parameters, in a stage.
    pub fn holds(&self, stage: Stage, owned: u64) -> [u64; 3] {
        let others = self.numel - self.muons;
        let plan = zero_memory(stage.number(), others, self.ranks as u64, self.bytes_each());
        let BytesEach { parameter, gradient, optimizer } = self.bytes_of_muon();
        let muons = |from: usize| if stage.number() >= from { owned } else { self.muons };
        [
            plan[0] + parameter * muons(3),
            plan[1] + gradient * muons(2),
            plan[2] + optimizer * muons(1),
        ]
    }
}
