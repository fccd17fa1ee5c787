//! How much memory a run takes: by arithmetic, before it takes any.

use super::Config;
use crate::error::BadInput;
use crate::launch;
use crate::parallel::ZeroConfig;
use crate::parallel::zero::Stage;
use crate::plan::{Memory, zero_memory, zero_memory_offloaded};
use crate::show;
use crate::tensor::Precision;

/// What a run's ranks hold, from which the memory that they take follows.
#[derive(Clone, Debug)]
pub struct Footprint<'a> {
    config: &'a Config,
    stage: Stage,
    precision: Precision,
    offloads: bool,
}

impl<'a> Footprint<'a> {
    /// Of plain data parallelism: every rank holds everything.
    pub fn new(config: &'a Config) -> Footprint<'a> {
        Footprint { config, stage: Stage::Zero, precision: Precision::F32, offloads: false }
    }

    /// Of a model that is divided.
    pub fn sharded(config: &'a Config, zero: &ZeroConfig) -> Footprint<'a> {
        Footprint { config, stage: zero.stage, precision: zero.precision, offloads: zero.offload.is_some() }
    }

    /// Bytes of one rank with batches of `batch` sequences; and, where it does not hold all parameters in f32, of all of
    /// them, which are there for a moment to begin with and to evaluate.
    pub fn of_a_rank(&self, batch: usize) -> (Memory, u64) {
        let Footprint { config, stage, precision, offloads } = *self;
        let plan = config.shape.memory(batch, config.dropout > 0.0);
        let numel = config.shape.parameters();
        let state = if offloads { zero_memory_offloaded } else { zero_memory };
        let each = precision.bytes_each();
        let [parameters, gradients, optimizer] = state(stage.number(), numel, config.ranks as u64, each);
        let holds_all = stage < Stage::Three && precision == Precision::F32;
        let for_a_moment = if holds_all { 0 } else { 4 * numel };
        (Memory { parameters, gradients, optimizer, activations: plan.activations }, for_a_moment)
    }

    /// Bytes that the ranks on this machine take together: in training, or in the check before it, in which rank 0 holds a
    /// second model.
    pub fn total(&self, batch: usize) -> u64 {
        let ranks = launch::ranks_here(self.config.ranks) as u64;
        let check = self.config.parity_check();
        let of = |footprint: &Footprint, batch| {
            let (memory, for_a_moment) = footprint.of_a_rank(batch);
            memory.total() + for_a_moment
        };
        let training = of(self, batch).saturating_mul(ranks);
        let check = (Footprint { config: &check, ..self.clone() }, check.batch.min(batch));
        training.max(of(&check.0, check.1).saturating_mul(ranks + 1))
    }

    /// Refuses a run that `free` bytes do not hold.
    pub fn ensure_fits(&self, free: u64) -> Result<(), BadInput> {
        let Config { batch, grad_accum, ranks, .. } = *self.config;
        if self.total(batch) <= free {
            return Ok(());
        }
        let gb = |bytes| show::bytes_decimal(bytes as f64);
        let (ranks, takes, free_gb) = (launch::ranks_here(ranks), gb(self.total(batch)), gb(free));
        let limit = launch::memory_limit_in_words();
        let what = format!("{ranks} ranks with --batch {batch} take {takes}, and {free_gb} are free{limit}");
        let help = match (1..batch).rev().find(|&batch| self.total(batch) <= free) {
            Some(largest) => {
                let accum = (batch * grad_accum).div_ceil(largest);
                format!("the largest that fits is --batch {largest} (with --grad-accum {accum} about the same step)")
            }
            None => "not even --batch 1 fits: give fewer --ranks, a smaller --block, or a smaller --preset".to_string(),
        };
        Err(BadInput::new(what, help))
    }

    /// The rows of a table: what is held, bytes, and why so many. What is nothing is left out.
    pub fn rows(&self) -> Vec<(&'static str, u64, String)> {
        let Footprint { config, stage, precision, .. } = *self;
        let (memory, for_a_moment) = self.of_a_rank(config.batch);
        let bytes = precision.bytes();
        let divided = |from| if stage >= from { format!(", divided among {}", config.ranks) } else { String::new() };
        let optimizer = match precision {
            Precision::F32 => "two moments, 8 bytes a parameter",
            Precision::Bf16 => "two moments and the master, 12 bytes a parameter",
        };
        let (one, all) = (memory.total() + for_a_moment, self.total(config.batch));
        let sharing = if all > one * launch::ranks_here(config.ranks) as u64 {
            "at most: the first check holds one model more"
        } else {
            "that share this machine's memory"
        };
        let mut rows = vec![
            ("parameters", memory.parameters, format!("{bytes} bytes each{}", divided(Stage::Three))),
            ("gradients", memory.gradients, format!("{bytes} bytes each{}", divided(Stage::Two))),
            ("optimizer", memory.optimizer, format!("{optimizer}{}", divided(Stage::One))),
            ("activations", memory.activations, "what forward keeps for backward, grows with --batch".to_string()),
            ("gathered", for_a_moment, "all parameters, to begin with and to evaluate".to_string()),
            ("one rank", one, String::new()),
            ("ranks here", all, sharing.to_string()),
        ];
        rows.retain(|(_, bytes, _)| *bytes > 0);
        rows
    }
}
