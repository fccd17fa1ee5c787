//! One training of the lab: in one way to skip, from its start or from a checkpoint.

use super::Job;
use super::spikes::Baseline;
use crate::flags::Policy;
use crate::skipping::{
    AttemptedStep, Bound, Counters, LossScaler, Outcome, Ranges, SkippingTrainer, state_bits,
};
use anyhow::{Context, Result};
use kit::show::{Plot, Screen, Series};
use kit::trace::{self, Trace};
use kit::{Clock, progress};
use shardlab::checkpoint::{Checkpoints, Resume};
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::parallel::Zero;
use shardlab::sha256;
use shardlab::train::{Diverged, all_hashes, evaluate};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Batches of the validation split, for the loss at a training's end.
const EVALUATION: usize = 40;

/// A training's treatment of bad steps.
#[derive(Clone, Debug)]
pub struct Way {
    pub policy: Policy,
    pub ranges: Ranges,
    /// Whether the data has the bad batches.
    pub poisoned: bool,
}

impl Way {
    /// The run in words, as the table of runs has them.
    fn name(&self) -> &'static str {
        let skips = !self.ranges.is_empty() || self.policy == Policy::Auto;
        match self.policy {
            _ if !self.poisoned => "clean text",
            _ if !skips => "skips nothing",
            Policy::Count => "count",
            Policy::OneBatch => "one-batch",
            Policy::Auto => "auto",
        }
    }

    /// What the flags of one training ask for.
    pub fn of(job: &Job) -> Way {
        Way {
            policy: job.flags.policy.unwrap_or(Policy::Count),
            ranges: job.ranges.clone(),
            poisoned: true,
        }
    }

    /// Skips nothing.
    pub fn plain(poisoned: bool) -> Way {
        Way { policy: Policy::Count, ranges: Ranges::default(), poisoned }
    }

    /// Skips `ranges` of a text with bad batches.
    pub fn skip(policy: Policy, ranges: &Ranges) -> Way {
        let ranges = if policy == Policy::Auto {
            Ranges::default()
        } else {
            ranges.clone()
        };
        Way { policy, ranges, poisoned: true }
    }
}

/// `auto` skips a step whose gradient norm is more than this many times the median of those before
/// it. A norm varies more than a loss: without bad data, up to about 2 times.
const NORMS: f64 = 4.0;

/// One rank's training, and what has happened in it.
pub struct Training<'a> {
    pub trainer: SkippingTrainer<'a>,
    policy: Policy,
    /// What a terminal shows while it trains.
    name: &'static str,
    /// The losses and the gradient norms of steps that were taken.
    losses: Baseline,
    grad_norms: Baseline,
    /// All steps so far. If the training began at a checkpoint, the steps before it are those of
    /// the training that saved it.
    pub steps: Vec<AttemptedStep>,
    /// The micro-batches of the last step, those that were discarded included.
    pub drawn: Rc<RefCell<Vec<Batch>>>,
    trace: Trace,
}

impl<'a> Training<'a> {
    /// A training at its start. All ranks call it.
    pub fn begin(job: &'a Job, comm: &Comm, way: &Way) -> Result<Training<'a>> {
        let scaling = &job.flags.scaling;
        let training = if scaling.fp16 {
            job.begin_in_half(comm)?
        } else {
            job.begin(comm)?
        };
        let trainer = SkippingTrainer::new(training, &job.corpus.train);
        let drawn = Rc::new(RefCell::new(Vec::new()));
        let keep = drawn.clone();
        let poisoned = way.poisoned;
        let rank = comm.rank();
        let mut trainer = trainer.with_draws(move |n, batch| {
            let batch = if poisoned {
                job.poison.apply(rank, n, batch)
            } else {
                batch
            };
            keep.borrow_mut().push(batch.clone());
            batch
        });
        trainer.scaler = scaling.fp16.then(|| LossScaler::new(scaling.config()));
        trainer.policy = way.policy.of_ranges();
        trainer.ranges = way.ranges.clone();
        Ok(Training {
            trainer,
            policy: way.policy,
            name: way.name(),
            losses: Baseline::default(),
            grad_norms: Baseline::default(),
            steps: Vec::new(),
            drawn,
            trace: Trace::default(),
        })
    }

    /// Records the steps for `--trace`, if it is given. All ranks call it.
    pub fn traced(self, job: &Job) -> Result<Training<'a>> {
        let trace = Trace::new(self.trainer.training.mesh.world(), job.flags.trace.as_deref())?;
        Ok(Training { trace, ..self })
    }

    /// A training that continues from a checkpoint in `folder`, which `earlier` has saved. All
    /// ranks call it.
    pub fn resume(
        job: &'a Job,
        comm: &'a Comm,
        way: &Way,
        (all, folder): (&Checkpoints, &Path),
        earlier: &Run,
    ) -> Result<Training<'a>> {
        let mut training = Training::begin(job, comm, way)?;
        let resumed = training.trainer.resume(all, &Resume::Path(folder.to_path_buf()))?;
        let step = resumed.context("a folder was named, so it was read")?.step;
        training.steps = earlier.steps[..step].to_vec();
        for step in &training.steps {
            if let Outcome::Taken { loss, grad_norm, .. } = step.outcome {
                training.losses.add(loss);
                training.grad_norms.add(grad_norm);
            }
        }
        Ok(training)
    }

    // ANCHOR: auto
    /// The next step. All ranks call it, and get the same outcome.
    pub fn step(&mut self) -> Result<&AttemptedStep> {
        self.drawn.borrow_mut().clear();
        if self.policy == Policy::Auto {
            // All ranks have the same bound: it follows losses that are means over all ranks, and
            // norms of all gradients.
            let bound = self.losses.limit().zip(self.grad_norms.limit());
            let bound = bound
                .map(|(loss, norm)| Bound { loss: loss.limit, grad_norm: NORMS * norm.median });
            self.trainer.bound = bound.or(Some(Bound::NONE));
        }
        let number = self.trainer.counters.next_step();
        let training = &self.trainer.training;
        progress(training.mesh.world(), || {
            format!("{}: step {number} of {}", self.name, training.config.steps)
        });
        let step = self.trainer.step().map_err(|error| Diverged::at(number, error))?;
        record(&mut self.trace, &self.trainer, &step);
        if let Outcome::Taken { loss, grad_norm, .. } = step.outcome {
            self.losses.add(loss); // a loss that passed the bound would raise it
            self.grad_norms.add(grad_norm);
        }
        self.steps.push(step);
        Ok(&self.steps[self.steps.len() - 1])
    }
    // ANCHOR_END: auto

    /// Saves the training. Returns the checkpoint's folder. All ranks call it.
    pub fn save(&mut self, all: &Checkpoints) -> Result<PathBuf> {
        self.trainer.start_save(all)?.finish()
    }

    /// Trains up to the run's last step, and evaluates the model. All ranks call it.
    pub fn run(mut self, job: &Job) -> Result<Run> {
        while self.trainer.counters.global_steps < job.config.steps {
            self.step()?;
        }
        self.finish(job)
    }

    /// Evaluates the model. All ranks call it.
    pub fn finish(self, job: &Job) -> Result<Run> {
        let SkippingTrainer { mut training, counters, scaler, .. } = self.trainer;
        let comm = &training.mesh.world().clone();
        if let Some(path) = self.trace.write(comm)? {
            job.screen.say(trace::row(&job.screen, path));
        }
        let sampler = training.config.sampler(comm.rank());
        let gpt = &training.stages.chunks[0];
        let text = &job.corpus.validation;
        let val = training.zero.passes(|| evaluate(gpt, comm, &sampler, text, EVALUATION))?;
        let models = training.whole(|gpt| all_hashes(comm, &gpt.params))?;
        Ok(Run {
            steps: self.steps,
            counters,
            scaler,
            val,
            models,
            state: state_hash(&mut training.zero)?,
        })
    }
}

/// Adds a step that has just ended, unless nothing was computed in it.
fn record(trace: &mut Trace, trainer: &SkippingTrainer, step: &AttemptedStep) {
    if step.outcome == Outcome::InRange {
        return;
    }
    if let Some(computed) = &trainer.computed {
        trace.step(step.step, &Clock::of(computed).laps, &computed.averaged);
    }
}

/// The hash of all that an optimizer step changes on this rank: weights and moments.
pub fn state_hash(zero: &mut Zero) -> Result<String> {
    Ok(sha256::hex(bytemuck::cast_slice(&state_bits(zero)?)))
}

/// One rank's figures of a training.
pub struct Run {
    pub steps: Vec<AttemptedStep>,
    pub counters: Counters,
    /// The loss scale at the end, in fp16.
    pub scaler: Option<LossScaler>,
    /// Loss on the validation split at the end.
    pub val: f64,
    /// The hash of each rank's model.
    pub models: Vec<String>,
    /// The hash of this rank's weights and moments.
    pub state: String,
}

impl Run {
    /// The steps that were taken, and their losses.
    pub fn losses(&self) -> Vec<(usize, f64)> {
        self.steps
            .iter()
            .filter_map(|step| Some((step.step, step.outcome.loss()?)))
            .collect()
    }

    /// The curve of these losses.
    pub fn curve(&self, screen: &Screen) -> String {
        let points = self.losses().into_iter().map(|(step, loss)| (step as f64, loss));
        let plot = Plot::new("loss", "step").series(Series::line("train", points));
        plot.height(8).render(screen)
    }
}

/// The hashes of the micro-batches that a step trained on: none if it was not taken.
pub fn trained_on(step: &AttemptedStep, accumulation: usize) -> &[String] {
    match step.outcome.loss() {
        // Those that were discarded came first.
        Some(_) => &step.drawn[step.drawn.len() - accumulation..],
        None => &[],
    }
}

/// The checkpoints that the story needs, all of one run. The next story removes them. Refuses a
/// folder that a different job has. All ranks call it.
pub fn checkpoints(job: &Job, comm: &Comm) -> Result<Checkpoints> {
    let dir = job.folder.join("checkpoints");
    let keep = job.config.steps / job.flags.save_every + 1;
    let all = checkpoints_in(dir, keep, job, comm).scratch();
    all.claim()?;
    Ok(all)
}

/// The job's checkpoints in a folder.
pub fn checkpoints_in(dir: PathBuf, keep: usize, job: &Job, comm: &Comm) -> Checkpoints {
    let mut of = job.config.job(&job.strategy, &job.corpus.train);
    let scaling = &job.flags.scaling;
    if scaling.fp16 {
        let rule = serde_json::json!(scaling.scaler);
        of.settings.insert("fp16".into(), true.into());
        of.settings.insert("scaler".into(), rule);
        of.settings.insert("window".into(), scaling.window.into());
    }
    Checkpoints::new(dir, keep, of, comm)
}
