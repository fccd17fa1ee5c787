//! What a training run is: the settings that all ranks have in common, known to be sound.

use super::preset::Preset;
use super::schedule::Schedule;
use crate::data::{Corpus, Sampler, Sampling};
use crate::error::BadInput;
use crate::launch;
use crate::model::Pass;
use crate::optim::AdamWConfig;
use crate::parallel::ZeroConfig;
use crate::parallel::zero::Stage;
use crate::plan::{GptShape, Memory, zero_memory, zero_memory_offloaded};
use crate::show;
use crate::tensor::{Dropout, Precision};
use std::path::PathBuf;
use std::sync::Arc;

/// What a training run is, checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub ranks: usize,
    pub preset: Preset,
    pub shape: GptShape,
    pub batch: usize,
    pub grad_accum: usize,
    pub steps: usize,
    pub eval_interval: usize,
    pub eval_iters: usize,
    pub log_interval: usize,
    pub schedule: Schedule,
    pub adamw: AdamWConfig,
    pub zero: ZeroConfig,
    pub clip: f64,
    pub dropout: f64,
    pub seed: u64,
    pub sampling: Sampling,
    pub prompt: String,
    pub prompt_tokens: Vec<u32>,
    pub out: PathBuf,
}

impl Config {
    /// Tokens that one step learns from, over all ranks and micro-steps.
    pub fn tokens_per_step(&self) -> usize {
        self.batch * self.grad_accum * self.ranks * self.shape.block
    }

    /// The run that the check before training compares in two ways: the baby preset's model on blocks and batches no larger
    /// than this run's, or this run's own model if that is smaller.
    pub fn parity_check(&self) -> Config {
        let baby = Preset::Baby.defaults(false);
        let block = baby.block.min(self.shape.block);
        let shape = GptShape { block, layers: baby.layers, heads: baby.heads, embd: baby.embd, ..self.shape };
        let shape = if shape.parameters() < self.shape.parameters() { shape } else { GptShape { block, ..self.shape } };
        Config { shape, batch: baby.batch.min(self.batch), grad_accum: 1, ..self.clone() }
    }

    /// The seed of a rank's own initial weights, before rank 0's replace them.
    pub fn seed_of(&self, rank: usize) -> u64 {
        self.seed.wrapping_add(rank as u64)
    }

    /// Whether the model is evaluated after this step, counted from 1.
    pub fn evaluates_after(&self, step: usize) -> bool {
        step.is_multiple_of(self.eval_interval) || step == self.steps
    }

    /// Bytes that the ranks on this machine take together: in training, or in the check before it, in which rank 0 holds a
    /// second model.
    pub fn memory(&self, batch: usize) -> u64 {
        let ranks = launch::ranks_here(self.ranks) as u64;
        let check = self.parity_check();
        let of = |config: &Config, batch| config.memory_of_a_rank(batch).0.total() + config.memory_of_a_rank(batch).1;
        let training = of(self, batch).saturating_mul(ranks);
        training.max(of(&check, check.batch.min(batch)).saturating_mul(ranks + 1))
    }

    /// Bytes of one rank; and, where it does not hold all parameters in f32, of all of them, which are there for a moment to
    /// begin with and to evaluate.
    pub fn memory_of_a_rank(&self, batch: usize) -> (Memory, u64) {
        let plan = self.shape.memory(batch, self.dropout > 0.0);
        let (numel, stage) = (self.shape.parameters(), self.zero.stage);
        let each = self.zero.precision.bytes_each();
        let state = if self.zero.offload.is_some() { zero_memory_offloaded } else { zero_memory };
        let [parameters, gradients, optimizer] = state(stage.number(), numel, self.ranks as u64, each);
        let holds_all = stage < Stage::Three && self.zero.precision == Precision::F32;
        let for_a_moment = if holds_all { 0 } else { 4 * numel };
        (Memory { parameters, gradients, optimizer, activations: plan.activations }, for_a_moment)
    }

    /// Refuses a run that `free` bytes do not hold.
    pub fn ensure_fits(&self, free: u64) -> Result<(), BadInput> {
        if self.memory(self.batch) <= free {
            return Ok(());
        }
        let gb = |bytes| show::bytes_decimal(bytes as f64);
        let what = format!(
            "{} ranks with --batch {} take {}, and {} are free{}",
            launch::ranks_here(self.ranks),
            self.batch,
            gb(self.memory(self.batch)),
            gb(free),
            launch::memory_limit_in_words()
        );
        let largest = (1..self.batch).rev().find(|&batch| self.memory(batch) <= free);
        Err(BadInput::new(
            what,
            match largest {
                Some(batch) => {
                    let accum = (self.batch * self.grad_accum).div_ceil(batch);
                    format!("the largest that fits is --batch {batch} (with --grad-accum {accum} about the same step)")
                }
                None => {
                    "not even --batch 1 fits: give fewer --ranks, a smaller --block, or a smaller --preset".to_string()
                }
            },
        ))
    }

    /// The sampler of one rank.
    pub fn sampler(&self, rank: usize) -> Sampler {
        Sampler {
            sampling: self.sampling,
            seed: self.seed,
            rank,
            ranks: self.ranks,
            batch: self.batch,
            block: self.shape.block,
        }
    }

    /// The forward pass of one training step over these sequences.
    pub fn pass(&self, step: usize, sequences: &Arc<[u64]>) -> Pass {
        let rules = || Dropout {
            p: self.dropout as f32,
            seed: self.seed,
            step: step as u64,
            sequences: sequences.clone(),
            first_position: 0,
        };
        Pass { train: true, dropout: (self.dropout > 0.0).then(rules) }
    }

    pub(super) fn check(&self, corpus: &Corpus) -> Result<(), BadInput> {
        let shape = &self.shape;
        // Far above any model, and low enough that no figure about a run overflows.
        const SIZES: usize = 1 << 16;
        const COUNTS: usize = 1 << 20;
        for (flag, value, most) in [
            // candle walks the graph by recursion, and the stack of a rank has an end.
            ("layers", shape.layers, 1 << 12),
            ("heads", shape.heads, SIZES),
            ("embd", shape.embd, SIZES),
            ("block", shape.block, SIZES),
            ("batch", self.batch, COUNTS),
            ("grad-accum", self.grad_accum, SIZES),
            ("steps", self.steps, usize::MAX),
            ("eval-interval", self.eval_interval, usize::MAX),
            ("eval-iters", self.eval_iters, COUNTS),
            ("log-interval", self.log_interval, usize::MAX),
            ("lr-decay-steps", self.schedule.decay_steps, usize::MAX),
        ] {
            if !(1..=most).contains(&value) {
                let upto = if most == usize::MAX { " on".to_string() } else { format!(" to {most}") };
                let help = format!("give a whole number from 1{upto}");
                return Err(BadInput::new(format!("--{flag} {value} is out of range"), help));
            }
        }
        if !shape.embd.is_multiple_of(shape.heads) {
            return Err(BadInput::new(
                format!("--embd {} cannot be divided among --heads {}", shape.embd, shape.heads),
                "every head gets embd / heads numbers: give a multiple of the heads",
            ));
        }
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let not_negative = |x: f64| x >= 0.0 && x.is_finite();
        let below_one = |x: f64| (0.0..1.0).contains(&x);
        let Schedule { lr, min_lr, .. } = self.schedule;
        for (flag, value, sound, rule) in [
            ("lr", lr, positive(lr), "a finite number above 0"),
            ("min-lr", min_lr, not_negative(min_lr) && min_lr <= lr, "a number from 0 to --lr"),
            ("weight-decay", self.adamw.weight_decay, not_negative(self.adamw.weight_decay), "0 or more"),
            ("beta1", self.adamw.beta1, below_one(self.adamw.beta1), "at least 0 and below 1"),
            ("beta2", self.adamw.beta2, below_one(self.adamw.beta2), "at least 0 and below 1"),
            ("clip", self.clip, not_negative(self.clip), "0 (off) or a finite number above"),
            ("dropout", self.dropout, below_one(self.dropout), "at least 0 and below 1"),
        ] {
            if !sound {
                return Err(BadInput::new(format!("--{flag} {value} is out of range"), format!("give {rule}")));
            }
        }
        let split = corpus.shorter_split();
        if shape.block >= split {
            let what = format!(
                "--block {} does not fit into {}: its shorter split has {split} tokens",
                shape.block, corpus.name
            );
            return Err(BadInput::new(what, format!("give --block at most {}, or a longer text", split - 1)));
        }
        let part = corpus.train.len() / self.ranks;
        if self.sampling == Sampling::Partition && shape.block >= part {
            let what = format!(
                "{} ranks leave each a part of {part} tokens, no longer than --block {}",
                self.ranks, shape.block
            );
            return Err(BadInput::new(what, "give fewer ranks, a smaller --block, or --sampler seeds"));
        }
        Ok(())
    }
}
