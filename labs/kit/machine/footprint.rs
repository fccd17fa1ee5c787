//! Computes a run's memory before the run allocates any.

use crate::machine::memory_limit_in_words;
use crate::show;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::ZeroConfig;
use shardlab::parallel::zero::{Offload, Stage};
use shardlab::plan::{DropoutMasks, Memory, zero_memory, zero_memory_offloaded};
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The settings that decide the memory of a run's ranks.
#[derive(Clone, Debug)]
pub struct Footprint<'a> {
    pub(crate) config: &'a Config,
    stage: Stage,
    /// Groups of ranks, of which each shards a replica.
    groups: usize,
    /// Whether the optimizer's state, and in stage 3 parameters, are in files.
    in_files: bool,
    /// Whether they are on the host, whose memory is this machine's.
    on_host: bool,
}

impl<'a> Footprint<'a> {
    /// The footprint of data parallelism: every rank holds everything.
    pub fn new(config: &'a Config) -> Footprint<'a> {
        Footprint {
            config,
            stage: Stage::Ddp,
            groups: 1,
            in_files: false,
            on_host: false,
        }
    }

    /// The footprint of ZeRO: ranks shard the model's state.
    pub fn sharded(config: &'a Config, zero: &ZeroConfig) -> Footprint<'a> {
        Footprint {
            config,
            stage: zero.stage,
            groups: 1,
            in_files: matches!(zero.offload, Some(Offload::Files(_))),
            on_host: matches!(zero.offload, Some(Offload::Host)),
        }
    }

    /// The same if ranks shard in so many groups.
    pub fn in_groups(self, groups: usize) -> Footprint<'a> {
        Footprint { groups, ..self }
    }

    /// The ranks that shard together.
    fn shard_ranks(&self) -> usize {
        self.config.ranks / self.groups
    }

    /// Bytes of one rank with batches of `batch` sequences; and bytes of a temporary f32 copy of
    /// all parameters. A rank that does not hold all parameters in f32 needs this copy to begin and
    /// to evaluate.
    pub fn of_a_rank(&self, batch: usize) -> (Memory, u64) {
        let Footprint { config, stage, in_files, .. } = *self;
        let Config { precision, reduce, .. } = *config;
        let plan = config.shape.memory(batch, DropoutMasks::of(config.dropout));
        let numel = config.shape.parameters();
        let state = if in_files { zero_memory_offloaded } else { zero_memory };
        let each = precision.bytes_each(reduce);
        let [parameters, gradients, mut optimizer] =
            state(stage.number(), numel, self.shard_ranks() as u64, each);
        if config.muon.is_some() && !in_files {
            // Its matrices have one moment.
            let owners = if stage >= Stage::One {
                self.shard_ranks() as u64
            } else {
                1
            };
            optimizer -= 4 * config.shape.hidden() / owners;
        }
        let holds_all = stage < Stage::Three && precision == Precision::F32;
        let temporary = if holds_all { 0 } else { 4 * numel };
        (
            Memory {
                parameters,
                gradients,
                optimizer,
                activations: plan.activations,
            },
            temporary,
        )
    }

    /// Bytes that the ranks on this machine take together: in training, or in the check before
    /// training if that takes more. In the check, rank 0 holds a second model.
    pub fn total(&self, batch: usize) -> u64 {
        let ranks = launch::ranks_here(self.config.ranks) as u64;
        let check = self.config.parity_check();
        let of = |footprint: &Footprint, batch| {
            let (memory, temporary) = footprint.of_a_rank(batch);
            memory.total() + temporary
        };
        let training = of(self, batch).saturating_mul(ranks);
        let check = (Footprint { config: &check, ..self.clone() }, check.batch.min(batch));
        training.max(of(&check.0, check.1).saturating_mul(ranks + 1))
    }

    /// Refuses a run that does not fit into `free` bytes, if the machine says how many that are.
    pub fn ensure_fits(&self, free: Option<u64>) -> Result<(), BadInput> {
        let Some(free) = free else {
            return Ok(());
        };
        let Config { batch, grad_accum, ranks, .. } = *self.config;
        if self.total(batch) <= free {
            return Ok(());
        }
        let help = match (1..batch).rev().find(|&batch| self.total(batch) <= free) {
            Some(largest) => {
                let accum = (batch * grad_accum).div_ceil(largest);
                format!("the largest that fits is --batch {largest} (with --grad-accum {accum} about the same step)")
            }
            None => "not even --batch 1 fits: give fewer --ranks, a smaller --block, or a smaller --preset".to_string(),
        };
        Err(does_not_fit(launch::ranks_here(ranks), batch, self.total(batch), free, &help))
    }

    /// The rows of a table: contents, bytes, and an explanation. Rows of 0 bytes are left out.
    pub fn rows(&self) -> Vec<(&'static str, u64, String)> {
        let Footprint { config, stage, on_host, .. } = *self;
        let Config { precision, reduce, .. } = *config;
        let (memory, temporary) = self.of_a_rank(config.batch);
        let place = |moves| if on_host && moves { ", on the host" } else { "" };
        let sharded = |from| {
            if stage >= from {
                format!(", sharded among {}", self.shard_ranks())
            } else {
                String::new()
            }
        };
        let optimizer = match precision {
            _ if config.muon.is_some() => "moments: Muon's matrices have one, all else two",
            Precision::F32 => "two moments, 8 bytes per parameter",
            Precision::Bf16 => "two moments and the master, 12 bytes per parameter",
        };
        let one = memory.total() + temporary;
        let all = self.total(config.batch);
        let sharing = if all > one * launch::ranks_here(config.ranks) as u64 {
            "at most: the first check holds one more model"
        } else {
            "all ranks that share this machine's memory"
        };
        let on_host = place(stage == Stage::Three);
        let each = precision.bytes();
        let of_parameters = format!("{each} bytes each{}{on_host}", sharded(Stage::Three));
        let of_gradients = format!("{} bytes each{}", reduce.bytes(), sharded(Stage::Two));
        let of_optimizer = format!("{optimizer}{}{}", sharded(Stage::One), place(true));
        let of_activations = "what forward keeps for backward, grows with --batch".to_string();
        let gathered = "all parameters, to begin with and to evaluate".to_string();
        let mut rows = vec![
            ("parameters", memory.parameters, of_parameters),
            ("gradients", memory.gradients, of_gradients),
            ("optimizer", memory.optimizer, of_optimizer),
            ("activations", memory.activations, of_activations),
            ("gathered", temporary, gathered),
            ("one rank", one, String::new()),
            ("ranks here", all, sharing.to_string()),
        ];
        rows.retain(|(_, bytes, _)| *bytes > 0);
        rows
    }
}

/// The error for `ranks` ranks that need more bytes than the machine has left.
pub fn does_not_fit(ranks: usize, batch: usize, takes: u64, free: u64, help: &str) -> BadInput {
    let [takes, free] = [takes, free].map(|bytes| show::bytes_decimal(bytes as f64));
    let limit = memory_limit_in_words();
    BadInput::new(
        format!("{ranks} ranks with --batch {batch} take {takes}, and {free} are free{limit}"),
        help,
    )
}
