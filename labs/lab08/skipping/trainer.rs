//! A training that survives bad steps: each step is taken, skipped because of its data, or refused
//! because gradients overflowed.
//!
//! All ranks decide together. A rank that skipped alone would leave the others waiting, or train a
//! model that is different from theirs. A checkpoint stores what later steps depend on
//! ([`Record`]). So a training that resumes has the bits of one that was not interrupted.

use super::{Bound, Counters, LossScaler, Ranges, SkipPolicy, StepSize};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use shardlab::checkpoint::{Checkpoints, Resume, Resumed, Writing};
use shardlab::comm::Reduce;
use shardlab::data::Batch;
use shardlab::error::BadInput;
use shardlab::parallel::Zero;
use shardlab::sha256;
use shardlab::train::{ComputedStep, Training, clip_scale};
use std::path::Path;
use std::time::Instant;

/// A source of micro-batches: returns number `n`, counted from 0.
pub type Draw<'a> = Box<dyn FnMut(usize) -> Batch + 'a>;

/// One rank's training, whose steps can be skipped, refused, saved and resumed.
pub struct SkippingTrainer<'a> {
    pub training: Training,
    pub counters: Counters,
    /// Steps to skip, by number.
    pub ranges: Ranges,
    pub policy: SkipPolicy,
    /// Skips steps whose loss or norm passes it.
    pub bound: Option<Bound>,
    pub scaler: Option<LossScaler>,
    /// The last step that was computed, taken or not: its passes and times.
    pub computed: Option<ComputedStep>,
    draw: Draw<'a>,
}

/// The state that a checkpoint stores beside weights and moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub counters: Counters,
    pub scaler: Option<LossScaler>,
}

/// One step: its number, counted from 1, and what this rank drew for it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptedStep {
    pub step: usize,
    /// The hashes of this rank's micro-batches, those that were discarded included.
    pub drawn: Vec<String>,
    pub outcome: Outcome,
}

/// The outcome of a step, equal on all ranks. Losses are means over all ranks, norms are of all
/// gradients before clipping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Taken {
        loss: f64,
        grad_norm: f64,
        lr: f64,
    },
    /// The step's number is in a range to skip. Nothing was computed.
    InRange,
    /// The loss or the norm passed the bound on some rank.
    PastBound {
        loss: f64,
        grad_norm: f64,
    },
    /// Gradients overflowed on some rank.
    Overflow {
        loss: f64,
    },
}

impl Outcome {
    /// The loss of a step that was taken.
    pub fn loss(&self) -> Option<f64> {
        match self {
            Outcome::Taken { loss, .. } => Some(*loss),
            _ => None,
        }
    }
}

impl<'a> SkippingTrainer<'a> {
    /// A training at its start. Micro-batches come from `text`, by the sampler of the rank's
    /// replica.
    pub fn new(training: Training, text: &'a [u32]) -> SkippingTrainer<'a> {
        let accumulation = training.micro_batches();
        let sampler = training.sampler();
        SkippingTrainer {
            training,
            counters: Counters::default(),
            ranges: Ranges::default(),
            policy: SkipPolicy::Count,
            bound: None,
            scaler: None,
            computed: None,
            draw: Box::new(move |n| sampler.nth(text, n, accumulation)),
        }
    }

    /// Changes each micro-batch that is drawn; `change` gets its number, counted from 0.
    pub fn with_draws(
        self,
        mut change: impl FnMut(usize, Batch) -> Batch + 'a,
    ) -> SkippingTrainer<'a> {
        let mut draw = self.draw;
        SkippingTrainer { draw: Box::new(move |n| change(n, draw(n))), ..self }
    }

    // ANCHOR: step
    /// The next step. All ranks call it, and all get the same outcome.
    ///
    /// # Errors
    /// [`NotFinite`](shardlab::optim::NotFinite) without a scaler and a bound,
    /// [`AtMinimum`](super::AtMinimum) with a scaler; if a pass or a collective fails.
    pub fn step(&mut self) -> Result<AttemptedStep> {
        let size = StepSize::of(&self.training.config);
        let step = self.counters.next_step();
        let plan = self.policy.plan(&self.ranges, step, size.accumulation);
        let mut drawn = Vec::new();
        for _ in 0..plan.discard {
            next_batch(&mut self.draw, &mut self.counters, &mut drawn);
        }
        if !plan.train {
            self.counters.skipped(size);
            return Ok(AttemptedStep { step, drawn, outcome: Outcome::InRange });
        }
        let mut computed = self.forward_backward(step, &mut drawn)?;
        let loss = self.training.loss(&computed.ran)?;
        let outcome = self.decide(loss)?;
        computed.times.updated = Instant::now();
        self.computed = Some(computed);
        match outcome {
            Outcome::Taken { .. } => self.counters.taken(size),
            Outcome::Overflow { .. } => self.counters.refused(size),
            Outcome::PastBound { .. } | Outcome::InRange => self.counters.skipped(size),
        }
        Ok(AttemptedStep { step, drawn, outcome })
    }
    // ANCHOR_END: step

    /// Draws the step's micro-batches, adds up their gradients, and averages them.
    fn forward_backward(&mut self, step: usize, hashes: &mut Vec<String>) -> Result<ComputedStep> {
        let SkippingTrainer { training, counters, draw, scaler, .. } = self;
        let begun = Instant::now();
        let mut batches = Vec::new();
        for _ in 0..training.micro_batches() {
            batches.push(next_batch(draw, counters, hashes));
        }
        let micro_batches = training.with_passes(step - 1, batches)?;
        training.stages.loss_scale = scaler.as_ref().map_or(1.0, LossScaler::scale);
        training.forward_backward(begun, &micro_batches)
    }

    /// Updates the weights, unless the ranks agree that they must not. `own` is the loss of this
    /// rank's replica.
    fn decide(&mut self, own: f64) -> Result<Outcome> {
        let training = &mut self.training;
        let comm = training.mesh.world().clone();
        let clip = training.config.clip;
        let norm = training.zero.norm()?;
        let loss = comm.reduced(own, Reduce::Mean)?;
        let (grad_norm, factor) = match &mut self.scaler {
            None => (norm, None),
            Some(scaler) => match scaler.judge(&comm, norm, clip)? {
                None => return Ok(Outcome::Overflow { loss }),
                Some(unscaled) => (unscaled.grad_norm, Some(unscaled.factor)),
            },
        };
        if let Some(bound) = self.bound
            && bound.passed(&comm, own, grad_norm)?
        {
            return Ok(Outcome::PastBound { loss, grad_norm });
        }
        let factor = factor.map_or_else(|| clip_scale(norm, clip), Ok)?;
        let lr = training.config.schedule.at(self.counters.schedule);
        training.zero.update(lr, factor)?;
        Ok(Outcome::Taken { loss, grad_norm, lr })
    }

    /// The factor for the loss of the next backward pass.
    pub fn scale(&self) -> f64 {
        self.scaler.as_ref().map_or(1.0, LossScaler::scale)
    }

    /// Begins to save the training; see [`Checkpoints::start`]. All ranks call it.
    ///
    /// # Errors
    /// If a file cannot be made or written.
    pub fn start_save<'c>(&mut self, all: &'c Checkpoints) -> Result<Writing<'c>> {
        let record = Record { counters: self.counters, scaler: self.scaler.clone() };
        all.start(self.counters.global_steps, &mut self.training.zero, &record)
    }

    /// Puts a saved state into a training that has just begun; see [`Checkpoints::resume`]. All
    /// ranks call it.
    ///
    /// # Errors
    /// If the checkpoint is damaged or of a different job, or cannot be read; if it has a loss
    /// scale and this training has none.
    pub fn resume(&mut self, all: &Checkpoints, which: &Resume) -> Result<Option<Resumed<Record>>> {
        let resumed = all.resume::<Record>(which, &mut self.training.zero)?;
        if let Some(Resumed { record, folder, .. }) = &resumed {
            self.counters = record.counters;
            match (&mut self.scaler, &record.scaler) {
                (Some(scaler), Some(saved)) => scaler.continue_from(saved),
                (None, Some(_)) => return Err(has_a_loss_scale(folder).into()),
                (_, None) => {}
            }
        }
        Ok(resumed)
    }
}

fn has_a_loss_scale(folder: &Path) -> BadInput {
    let what = format!("{} is of a run in fp16, with a loss scale", folder.display());
    BadInput::new(what, "give --fp16, or another folder to --checkpoints")
}

/// Draws the next micro-batch, and adds its hash to `drawn`.
fn next_batch(draw: &mut Draw, counters: &mut Counters, drawn: &mut Vec<String>) -> Batch {
    let batch = draw(counters.draw());
    drawn.push(hash(&batch));
    batch
}

/// The bits of all that an optimizer step changes on this rank: values, moments, and the number of
/// steps. No communication.
///
/// # Errors
/// If state in files cannot be read.
pub fn state_bits(zero: &mut Zero) -> Result<Vec<u32>> {
    let mut bits = vec![zero.steps() as u32];
    zero.fragments(|_, _, state| {
        let all = state.values.iter().chain(&*state.exp_avg).chain(&*state.exp_avg_sq);
        bits.extend(all.map(|x| x.to_bits()));
    })?;
    Ok(bits)
}

/// The SHA-256 of all tokens. Equal hashes mean equal batches.
pub fn hash(batch: &Batch) -> String {
    sha256::hex(bytemuck::cast_slice(&[&batch.inputs[..], &batch.targets].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::Corpus;
    use shardlab::launch;
    use shardlab::parallel::Strategy;
    use shardlab::parallel::zero::Stage;
    use shardlab::tensor::IGNORED;
    use shardlab::train::{Config, MicroBatch, Observer};

    #[test]
    fn the_loss_of_a_step_is_the_mean_over_all_ranks() {
        let corpus = Corpus::embedded().unwrap();
        let config = Config::small(2, &corpus);
        let found = launch::run(2, |comm| {
            let training = Training::new(&config, &Strategy::data(2, Stage::Ddp), &comm)?;
            let mut trainer = SkippingTrainer::new(training, &corpus.train);
            let loss = trainer.step()?.outcome.loss().unwrap();
            Ok((loss, trainer.training.loss(&trainer.computed.unwrap().ran)?))
        });
        let [(first, own), (second, others)] = found.unwrap()[..] else {
            panic!("two ranks")
        };
        assert_ne!(own, others);
        assert_eq!([first, second], [(own + others) / 2.0; 2]);
    }

    /// Ends a document in each sequence, where the first rank has fewer targets than the others.
    struct Packed {
        first: bool,
    }

    impl Packed {
        fn pack(&self, mut batch: Batch) -> Batch {
            batch.documents = vec![vec![8]; batch.sequences.len()].into();
            let without = if self.first { 8 } else { 1 };
            for targets in batch.targets.chunks_mut(batch.length) {
                targets[8 - without..8].fill(IGNORED);
            }
            batch
        }
    }

    impl Observer for Packed {
        fn batch(&mut self, micro_batch: MicroBatch) -> Batch {
            self.pack(micro_batch.draw())
        }
    }

    /// A rank with fewer targets weighs less, whether or not steps can be skipped.
    #[test]
    fn packed_documents_weigh_as_in_a_step_that_is_not_skipped() {
        let corpus = Corpus::embedded().unwrap();
        let config = Config { grad_accum: 2, ..Config::small(2, &corpus) };
        for strategy in ["dp=2", "dp=2,cp=2"] {
            let strategy: Strategy = strategy.parse().unwrap();
            let same = launch::run(strategy.ranks(), |comm| {
                let text = &corpus.train;
                let begin = || Training::new(&config, &strategy, &comm);
                let mut plain = begin()?;
                let packed = || Packed { first: plain.sampler().rank == 0 };
                let skipping = packed();
                let mut trainer = SkippingTrainer::new(begin()?, text)
                    .with_draws(move |_, batch| skipping.pack(batch));
                let mut packed = packed();
                let taken = plain.step_with(text, 0, &mut packed)?;
                let Outcome::Taken { grad_norm, .. } = trainer.step()?.outcome else {
                    panic!("the step is taken")
                };
                assert_eq!(grad_norm, taken.grad_norm, "{strategy}");
                Ok(state_bits(&mut trainer.training.zero)? == state_bits(&mut plain.zero)?)
            });
            assert!(same.unwrap().into_iter().all(|same| same), "{strategy}");
        }
    }
}
