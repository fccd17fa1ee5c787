//! The settings that define a training run. They are the same on all ranks, and they have been
//! checked.

use super::schedule::LrSchedule;
use crate::checkpoint::Settings;
use crate::data::{Corpus, Sampler, Sampling};
use crate::model::{Auxiliary, Pass};
use crate::optim::{AdamWConfig, MuonConfig};
use crate::parallel::ZeroConfig;
use crate::parallel::zero::Stage;
use crate::plan::{Family, ModelShape};
use crate::sha256;
use crate::tensor::{Dropout, Precision, Slices};
use std::sync::Arc;

/// The settings that define a training run. A lab makes one of its flags.
///
/// Without flags, say what differs from the defaults:
///
/// ```
/// use shardlab::comm::Comm;
/// use shardlab::data::Corpus;
/// use shardlab::parallel::Strategy;
/// use shardlab::train::{Config, Training};
///
/// let corpus = Corpus::embedded()?;
/// let config = Config { steps: 10, batch: 8, ..Config::default() };
/// let mut training = Training::new(&config, &Strategy::default(), &Comm::alone())?;
/// let mut losses = Vec::new();
/// for step in 0..config.steps {
///     losses.push(training.step(&corpus.train, step)?.loss);
/// }
/// assert!(losses.last() < losses.first());
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub ranks: usize,
    pub shape: ModelShape,
    /// Sequences per rank and micro-step.
    pub batch: usize,
    pub grad_accum: usize,
    pub sampling: Sampling,
    pub steps: usize,
    pub schedule: LrSchedule,
    pub adamw: AdamWConfig,
    /// Updates the hidden matrices; `None` leaves them to AdamW.
    pub muon: Option<MuonConfig>,
    /// The largest global norm of a step's gradients; 0 turns clipping off.
    pub clip: f64,
    pub dropout: f64,
    /// What keeps the choices of routers even, in a model with experts.
    pub auxiliary: Auxiliary,
    /// The type in which parameters are stored, and of what matrix products read.
    pub precision: Precision,
    /// The type in which gradients are kept, and summed between ranks.
    pub reduce: Precision,
    pub seed: u64,
}

/// One rank trains a tiny GPT on the embedded corpus, in milliseconds. The vocabulary is that
/// corpus's ([`Config::small`] takes another's), and the learning rate is constant: a decay would
/// have to know how many steps there are.
impl Default for Config {
    fn default() -> Config {
        Config {
            ranks: 1,
            shape: ModelShape {
                vocabulary: 65,
                block: 16,
                layers: 2,
                heads: 2,
                embd: 32,
                family: Family::Gpt,
                experts: None,
            },
            batch: 3,
            grad_accum: 1,
            sampling: Sampling::Partition,
            steps: 12,
            schedule: LrSchedule::constant(1e-3),
            adamw: AdamWConfig::default(),
            muon: None,
            clip: 1.0,
            dropout: 0.0,
            auxiliary: Auxiliary::default(),
            precision: Precision::F32,
            reduce: Precision::F32,
            seed: 1337,
        }
    }
}

impl Config {
    /// The default run on `corpus`, with a warm-up and a decay over its 12 steps. Checks and tests
    /// change the fields that matter to them.
    pub fn small(ranks: usize, corpus: &Corpus) -> Config {
        let default = Config::default();
        let vocabulary = corpus.vocabulary.size();
        Config {
            ranks,
            shape: ModelShape { vocabulary, ..default.shape },
            schedule: LrSchedule {
                lr: 1e-3,
                min_lr: 1e-4,
                warmup: 4,
                decay_steps: default.steps,
            },
            ..default
        }
    }

    /// Tokens that one step learns from, over all ranks and micro-steps.
    pub fn tokens_per_step(&self) -> usize {
        self.samples_per_step() * self.shape.block
    }

    /// Sequences that one step learns from, over all ranks and micro-steps.
    pub fn samples_per_step(&self) -> usize {
        self.batch * self.grad_accum * self.ranks
    }

    /// All that a step on `text` depends on beside model and seed, as checkpoints record it: by the
    /// names of the flags.
    pub fn settings(&self, text: &[u32]) -> Settings {
        let schedule = &self.schedule;
        let adamw = &self.adamw;
        let mut all = vec![
            ("data", sha256::hex(bytemuck::cast_slice(text)).into()),
            ("sampler", format!("{:?}", self.sampling).to_lowercase().into()),
            ("batch", self.batch.into()),
            ("grad-accum", self.grad_accum.into()),
            ("global-batch", self.samples_per_step().into()),
            ("lr", schedule.lr.into()),
            ("min-lr", schedule.min_lr.into()),
            ("warmup", schedule.warmup.into()),
            ("lr-decay-steps", schedule.decay_steps.into()),
            ("weight-decay", adamw.weight_decay.into()),
            ("beta1", adamw.beta1.into()),
            ("beta2", adamw.beta2.into()),
            ("optimizer", if self.muon.is_some() { "muon" } else { "adamw" }.into()),
            ("clip", self.clip.into()),
            ("dropout", self.dropout.into()),
            ("dtype", self.precision.name().into()),
            ("reduce-dtype", self.reduce.name().into()),
        ];
        if let Some(muon) = &self.muon {
            all.extend([
                ("muon-momentum", muon.momentum.into()),
                ("muon-steps", muon.newton_schulz.name().into()),
                ("muon-scale", muon.scale.name().into()),
                ("muon-qkv", if muon.split_qkv { "split" } else { "whole" }.into()),
            ]);
        }
        if self.shape.experts.is_some() {
            let Auxiliary { coefficient, scope, over_ranks, z } = self.auxiliary;
            all.extend([
                ("aux-loss", coefficient.into()),
                ("aux-scope", format!("{scope:?}").to_lowercase().into()),
                ("aux-over-ranks", over_ranks.into()),
                ("z-loss", z.into()),
                ("bias-rate", adamw.bias_rate.into()),
            ]);
        }
        all.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    /// The run for the check before training, which trains it in two ways. It has a model of
    /// 0.8 M parameters, or this run's own model if that is smaller. Its blocks and batches are no
    /// larger than this run's, and neither is its rate than the usual one: with a larger one
    /// roundings grow within a few steps, until the losses of two right ways are apart.
    pub fn parity_check(&self) -> Config {
        let block = self.shape.block.min(64);
        // A model with experts keeps some of them.
        let dense = self.shape.experts.map_or(0, |experts| experts.dense_layers);
        let layers = 4.max(dense + 1);
        let shape = ModelShape { block, layers, heads: 4, embd: 128, ..self.shape };
        let shape = if shape.parameters() < self.shape.parameters() {
            shape
        } else {
            ModelShape { block, ..self.shape }
        };
        let usual = Config::default().schedule.lr;
        let schedule = LrSchedule {
            lr: self.schedule.lr.min(usual),
            min_lr: self.schedule.min_lr.min(usual),
            ..self.schedule
        };
        Config {
            shape,
            batch: self.batch.min(12),
            grad_accum: 1,
            schedule,
            ..self.clone()
        }
    }

    /// The seed of a rank's own initial weights, before rank 0's replace them.
    pub fn seed_of(&self, rank: usize) -> u64 {
        self.seed.wrapping_add(rank as u64)
    }

    /// The sampler of rank `rank`.
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
            slices: Slices::default(),
        };
        let dropout = (self.dropout > 0.0).then(rules);
        Pass { precision: self.precision, ..Pass::training(dropout) }
    }

    /// ZeRO's settings in this run: its types and its optimizer.
    pub fn zero(&self, stage: Stage) -> ZeroConfig {
        let Config { precision, reduce, adamw, muon, .. } = *self;
        ZeroConfig { reduce, muon, ..ZeroConfig::new(stage, precision, adamw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_the_vocabulary_of_the_embedded_corpus() {
        let corpus = Corpus::embedded().unwrap();
        assert_eq!(Config::default().shape.vocabulary, corpus.vocabulary.size());
    }
}
