//! One training step, whatever divides the work among ranks: *finish, agree, update*.
//!
//! First each rank makes the forward and backward passes of its own micro-batches, which add up
//! gradients. Then the ranks *finish*: they wait until all gradients are averaged. They *agree* on
//! the norm of all gradients, so that all of them clip alike, or all refuse a norm that is not
//! finite. At last each rank *updates* what it holds.

use super::{AdamW, AdamWConfig, clip_scale, global_norm};
use crate::comm::Comm;
use crate::parallel::{Averaged, Ddp, Zero};
use crate::tensor::{Params, Tensor};
use anyhow::Result;
use std::sync::Arc;

/// What averages gradients and updates parameters, as DeepSpeed calls it. All ranks make the same
/// calls in the same order.
pub trait Engine {
    /// Begins a step: sets gradients to zero.
    ///
    /// # Errors
    /// If parameters that are needed whole could not be gathered.
    fn begin(&mut self) -> Result<()>;

    /// Tells whether the next backward pass is the step's last one.
    fn synchronise(&self, last_micro_step: bool);

    /// Waits until gradients are averaged. Returns the time of each collective.
    ///
    /// # Errors
    /// If a collective failed, or a parameter got no gradient.
    fn finish(&mut self) -> Result<Vec<Averaged>>;

    /// Clips the averaged gradients to the global norm `clip` (0: no clipping) and updates the
    /// parameters. Returns the norm before clipping.
    ///
    /// # Errors
    /// [`NotFinite`](crate::optim::NotFinite) on every rank, if the norm is not finite: then
    /// nothing changes. An error of communication, too, if the norm needs some.
    fn step(&mut self, lr: f64, clip: f64) -> Result<f64>;
}

impl Engine for Zero {
    fn begin(&mut self) -> Result<()> {
        Zero::begin(self)
    }

    fn synchronise(&self, last_micro_step: bool) {
        Zero::synchronise(self, last_micro_step);
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        Zero::finish(self)
    }

    fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        Zero::step(self, lr, clip)
    }
}

/// Plain data parallelism: [`Ddp`] averages the gradients, and each rank has a whole [`AdamW`].
pub struct DataParallel {
    params: Arc<Params>,
    ddp: Ddp,
    adamw: AdamW,
}

impl DataParallel {
    /// Trains parameters that are allocated. All ranks of `comm` begin with rank 0's values.
    ///
    /// # Errors
    /// If the broadcast of rank 0's values failed.
    pub fn new(params: &Arc<Params>, comm: &Comm, adamw: AdamWConfig) -> Result<DataParallel> {
        Ok(DataParallel {
            params: params.clone(),
            ddp: Ddp::new(params, comm)?,
            adamw: AdamW::new(adamw, params),
        })
    }
}

impl DataParallel {
    /// What averages the gradients.
    pub fn ddp(&self) -> &Ddp {
        &self.ddp
    }
}

impl Engine for DataParallel {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        Ok(())
    }

    fn synchronise(&self, last_micro_step: bool) {
        self.ddp.synchronise(last_micro_step);
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        self.ddp.finish()
    }

    fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        // The same on all ranks: their gradients are.
        let norm = global_norm(&self.params.gradients());
        self.adamw.step(&self.params, lr, clip_scale(norm, clip)?)?;
        Ok(norm)
    }
}

/// Takes training steps with an engine.
///
/// Two ranks train one small GPT. Each draws its own sequences; ZeRO divides the optimizer's state
/// between them:
///
/// ```
/// use shardlab::data::Corpus;
/// use shardlab::launch;
/// use shardlab::model::Gpt;
/// use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
/// use shardlab::tensor::Precision;
/// use shardlab::train::{Config, Trainer};
///
/// let corpus = Corpus::embedded()?;
/// let config = Config::small(2, &corpus);
/// let ranks = launch::run(2, |comm| {
///     let gpt = Gpt::new(&config.shape)?;
///     let zero = ZeroConfig::new(Stage::One, Precision::F32, config.adamw);
///     let mut zero = Zero::init(&gpt.params, &comm, zero, config.seed)?;
///     let mut trainer = Trainer::new(&mut zero, config.grad_accum, config.clip);
///     let sampler = config.sampler(comm.rank());
///     let mut steps = Vec::new();
///     for step in 0..config.steps {
///         steps.push(trainer.step(config.schedule.at(step), |micro| {
///             let batch = sampler.batch(&corpus.train, step, micro);
///             Ok(gpt.loss(&batch, &config.pass(step, &batch.sequences))?)
///         })?);
///     }
///     Ok(steps)
/// })?;
/// let [first, last] = [&ranks[0][0], &ranks[0][config.steps - 1]];
/// assert!(last.loss < first.loss);
/// assert_eq!(ranks[0][0].grad_norm, ranks[1][0].grad_norm); // one norm, by which all ranks clip
/// # anyhow::Ok(())
/// ```
pub struct Trainer<'a> {
    engine: &'a mut dyn Engine,
    /// Micro-batches per step and rank, whose gradients are added up.
    pub micro_steps: usize,
    /// The largest global norm of a step's gradients; 0 turns clipping off.
    pub clip: f64,
    /// The factor for the loss in the backward pass, such as a loss scale; 1 changes nothing.
    pub weight: f64,
}

/// The outcome of a step on this rank.
#[derive(Debug)]
pub struct TrainedStep {
    /// The mean over this rank's micro-batches.
    pub loss: f64,
    /// The norm of all gradients before clipping, the same on all ranks.
    pub grad_norm: f64,
    /// The time of each collective on gradients, in the order of the backward pass.
    pub averaged: Vec<Averaged>,
}

impl<'a> Trainer<'a> {
    /// Steps of `micro_steps` micro-batches, whose gradients are clipped to the norm `clip` (0: no
    /// clipping).
    pub fn new(engine: &'a mut dyn Engine, micro_steps: usize, clip: f64) -> Trainer<'a> {
        Trainer { engine, micro_steps, clip, weight: 1.0 }
    }

    // ANCHOR: step
    /// Takes one step with learning rate `lr`. `loss` makes the forward pass of a micro-batch,
    /// counted from 0, and returns its mean loss, a scalar. All ranks call it.
    ///
    /// # Errors
    /// Those of the passes, of communication, and [`NotFinite`](crate::optim::NotFinite) on all
    /// ranks.
    pub fn step(
        &mut self,
        lr: f64,
        loss: impl FnMut(usize) -> Result<Tensor>,
    ) -> Result<TrainedStep> {
        let loss = self.passes(loss)?;
        let averaged = self.engine.finish()?;
        let grad_norm = self.engine.step(lr, self.clip)?;
        Ok(TrainedStep { loss, grad_norm, averaged })
    }

    /// The first half of a step: adds up the gradients of all micro-batches. Returns their mean
    /// loss, without `weight`.
    ///
    /// # Errors
    /// Those of the passes, and of communication that runs beside them.
    pub fn passes(&mut self, mut loss: impl FnMut(usize) -> Result<Tensor>) -> Result<f64> {
        let micro_steps = self.micro_steps as f64;
        let mut sum = 0.0;
        self.engine.begin()?;
        for micro in 0..self.micro_steps {
            let loss = loss(micro)?;
            sum += f64::from(loss.to_scalar::<f32>()?);
            self.engine.synchronise(micro + 1 == self.micro_steps);
            // The shares' gradients add up to the mean's.
            let share = ((loss / micro_steps)? * self.weight)?;
            share.backward()?; // averages what is complete, in the last micro-step
        }
        Ok(sum / micro_steps)
    }
    // ANCHOR_END: step
}
