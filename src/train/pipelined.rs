//! Trains a model that ranks share as a pipeline, and the same model on one rank.

use super::{AdamW, AdamWConfig, Config, Diverged, Engine, Trainer, clip_scale};
use crate::data::Batch;
use crate::error::BadInput;
use crate::mesh::{Axis, Mesh};
use crate::model::{Build, Gpt, Input, Pass, Plain};
use crate::optim::stored_norm;
use crate::parallel::pipeline::{
    Choice, Dynamic, Instruction, Op, Partition, Pipeline, Schedule, Stages, StepRecord,
};
use crate::parallel::{Averaged, TensorParallel, Zero, ZeroConfig};
use crate::tensor::Params;
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;

/// How a pipeline trains a model.
#[derive(Clone, Copy, Debug)]
pub struct PipelinePlan {
    pub pipeline: Pipeline,
    pub schedule: Schedule,
    pub partition: Partition,
    /// Blocks whose activations are recomputed together; 0 keeps all activations.
    pub recompute: usize,
}

impl PipelinePlan {
    /// Refuses what cannot run, before anything does.
    ///
    /// # Errors
    /// If the schedule cannot run this pipeline, or the layers cannot be divided among its stages.
    pub fn check(&self, config: &Config) -> Result<(), BadInput> {
        self.schedule.check(&self.pipeline)?;
        self.partition.layers(&config.shape, self.pipeline.stages()).map(drop)
    }
}

/// One rank's part of the model and of its training.
pub struct Pipelined {
    config: Config,
    /// The rank's number in its data group, which decides its batches.
    data: usize,
    tensor: TensorParallel,
    sequence: bool,
    /// This rank's list of operations.
    pub program: Vec<Instruction>,
    /// Runs the passes of `program` in a dynamic order. Only for one replica, because data ranks
    /// average gradients in the order of their passes, and only for a program without separate
    /// passes for the weights' gradients.
    pub dynamic: Option<Choice>,
    pub stages: Stages,
    pub zero: Zero,
}

/// A step of one rank.
pub struct PipelinedStep {
    /// The mean over the micro-batches of this rank's replica, in nats per token, on every rank.
    pub loss: f64,
    /// The norm of all gradients on all ranks, before clipping.
    pub grad_norm: f64,
    pub ran: StepRecord,
}

impl Pipelined {
    /// The part of the rank that is `mesh.at`. `sharing`: whether tensor ranks also shard the
    /// sequence, and what the vocabulary is padded to. `config.grad_accum` must be the pipeline's
    /// number of micro-batches.
    ///
    /// # Errors
    /// If the layers cannot be divided among the stages, if ZeRO's stage is 2 or 3, or a collective
    /// fails.
    pub fn new(
        config: &Config,
        mesh: &Mesh,
        plan: &PipelinePlan,
        (sequence, multiple): (bool, usize),
        zero: ZeroConfig,
    ) -> Result<Pipelined> {
        let ranks = mesh.group(Axis::Pipeline);
        let tensor_ranks = mesh.group(Axis::Tensor);
        let mut tensor = TensorParallel::new(tensor_ranks.clone()).pad_vocabulary_to(multiple);
        if sequence {
            tensor = tensor.sequence_parallel();
        }
        let build: &dyn Build = if tensor_ranks.size() > 1 { &tensor } else { &Plain };
        let mut stages = Stages::new(plan.pipeline, ranks, &config.shape, plan.partition, build)?;
        for chunk in &mut stages.chunks {
            chunk.recompute(plan.recompute);
        }
        let zero = Zero::init(&stages.chunks[0].params, mesh.group(Axis::Data), zero, config.seed)?;
        let order = plan.schedule.order(&plan.pipeline, ranks.rank());
        Ok(Pipelined {
            config: config.clone(),
            data: mesh.at.data,
            zero: zero.with_tensor(&tensor)?.with_pipeline(ranks)?,
            program: plan.pipeline.with_messages(ranks.rank(), &order),
            dynamic: None,
            sequence: sequence && tensor_ranks.size() > 1,
            tensor,
            stages,
        })
    }

    /// The batches of `step`'s micro-batches, and the passes over them.
    fn micro_batches(&self, text: &[u32], step: usize) -> Vec<(Batch, Pass)> {
        let config = &self.config;
        let sampler = self.config.sampler(self.data);
        let draw = |micro| {
            let batch = sampler.batch(text, step, micro);
            let pass = self.tensor.pass(config.pass(step, &batch.sequences), batch.length);
            (batch, pass)
        };
        (0..config.grad_accum).map(draw).collect()
    }

    /// Runs the forward and backward passes of one step, and adds up gradients.
    ///
    /// # Errors
    /// If a pass or a message fails.
    pub fn forward_backward(&mut self, text: &[u32], step: usize) -> Result<StepRecord> {
        let config = &self.config;
        let parts = self.tensor.group().size();
        let length = config.shape.block / if self.sequence { parts } else { 1 };
        let activations = [config.batch, length, config.shape.embd];
        let micro_batches = self.micro_batches(text, step);
        self.zero.begin()?;
        let Some(choice) = self.dynamic else {
            return self.stages.step(&self.program, &micro_batches, activations, &self.zero);
        };
        let pass = |one: &Instruction| match one {
            Instruction::Compute(op) => Some(*op),
            _ => None,
        };
        let order: Vec<Op> = self.program.iter().filter_map(pass).collect();
        let dynamic = Dynamic { order: &order, choice, tensor: self.tensor.group() };
        self.stages.step_dynamic(&dynamic, &micro_batches, activations, &self.zero)
    }

    /// Takes one step.
    ///
    /// # Errors
    /// If a pass or a message fails; [`Diverged`] on all ranks, if the norm is not finite.
    pub fn step(&mut self, text: &[u32], step: usize) -> Result<PipelinedStep> {
        let ran = self.forward_backward(text, step)?;
        self.zero.finish()?;
        let grad_norm = self.update(step)?;
        Ok(PipelinedStep { loss: self.loss(&ran)?, grad_norm, ran })
    }

    /// Clips the averaged gradients and updates the parameters. Returns the norm of all gradients
    /// on all ranks, before clipping.
    ///
    /// # Errors
    /// [`Diverged`] on all ranks, if the norm is not finite: then nothing changes. If a collective
    /// fails.
    pub fn update(&mut self, step: usize) -> Result<f64> {
        self.zero
            .step(self.config.schedule.at(step), self.config.clip)
            .map_err(|error| Diverged::at(step + 1, error))
    }

    /// The mean over the micro-batches of this rank's replica, on every rank of the pipeline. All
    /// of them call it.
    ///
    /// # Errors
    /// If the broadcast fails.
    pub fn loss(&self, ran: &StepRecord) -> Result<f64> {
        let mut loss = [mean(&ran.losses)];
        let ranks = self.stages.group();
        ranks.broadcast(&mut loss, ranks.size() - 1)?;
        Ok(loss[0])
    }

    /// Puts the trained model together in `whole`, on every rank. All ranks call it.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn unshard(&mut self, whole: &Params) -> Result<()> {
        let params = &self.stages.chunks[0].params;
        let groups = [self.tensor.group(), self.stages.group()];
        self.zero.whole(|| Ok(crate::parallel::unshard(&groups, params, whole)?))
    }
}

fn mean(losses: &[f64]) -> f64 {
    losses.iter().sum::<f64>() / losses.len().max(1) as f64
}

/// A short training on one rank.
pub struct Unpipelined {
    pub losses: Vec<f64>,
    pub grad_norms: Vec<f64>,
    /// The parameters of the first part and of the rest, as stages have them.
    pub parts: [Gpt; 2],
}

/// Trains on one rank, micro-batch after micro-batch, without a pipeline: the same sums in the same
/// order as with one.
///
/// A pipeline's first and last stage each add up their own part of the token table's gradient, and
/// then add the two parts. So this model, too, has the table twice: once for the embedding and once
/// for the head.
///
/// # Errors
/// [`Diverged`], if a norm is not finite; if the model's shape is impossible.
pub fn unpipelined(config: &Config, text: &[u32], steps: usize) -> Result<Unpipelined> {
    let layers = config.shape.layers;
    let first = Gpt::stage(&config.shape, 0..layers / 2, &Plain)?;
    let rest = Gpt::stage(&config.shape, layers / 2..layers, &Plain)?;
    let parts = [first, rest];
    for part in &parts {
        part.params.allocate(config.seed);
    }
    let mut halves = TiedHalves::new(&parts, config.adamw);
    let mut trainer = Trainer::new(&mut halves, config.grad_accum, config.clip);
    let mut losses = Vec::new();
    let mut grad_norms = Vec::new();
    for step in 0..steps {
        let taken = trainer.step(config.schedule.at(step), |micro| {
            let batch = config.sampler(0).batch(text, step, micro);
            let pass = config.pass(step, &batch.sequences);
            let tokens = Input::Tokens { ids: &batch.inputs, length: batch.length };
            let x = parts[0].forward(tokens, &[], &pass)?;
            Ok(parts[1].forward(Input::Hidden(&x), &batch.targets, &pass)?)
        });
        let taken = taken.map_err(|error| Diverged::at(step + 1, error))?;
        losses.push(taken.loss);
        grad_norms.push(taken.grad_norm);
    }
    Ok(Unpipelined { losses, grad_norms, parts })
}

/// The two parts of a model on one rank, each with a copy of the token table.
struct TiedHalves {
    params: [Arc<Params>; 2],
    optimizers: [AdamW; 2],
    /// The table's elements in each part.
    table: [Range<usize>; 2],
}

impl TiedHalves {
    fn new(parts: &[Gpt; 2], adamw: AdamWConfig) -> TiedHalves {
        let params = parts.each_ref().map(|part| part.params.clone());
        let table = params.each_ref().map(|params| {
            let mut specs = params.specs().iter();
            let spec = specs.find(|spec| spec.name == "wte.weight");
            spec.map(|spec| spec.range()).unwrap_or_default()
        });
        TiedHalves {
            optimizers: params.each_ref().map(|params| AdamW::new(adamw, params)),
            params,
            table,
        }
    }
}

impl Engine for TiedHalves {
    fn begin(&mut self) -> Result<()> {
        for params in &self.params {
            params.zero_gradients();
        }
        Ok(())
    }

    fn synchronise(&self, _last_micro_step: bool) {}

    /// Adds up the table's two gradients, as the pipeline's two ends do.
    fn finish(&mut self) -> Result<Vec<Averaged>> {
        let mut first = self.params[0].gradients();
        let mut rest = self.params[1].gradients();
        for (a, b) in first[self.table[0].clone()].iter_mut().zip(&mut rest[self.table[1].clone()])
        {
            *a += *b;
            *b = *a;
        }
        Ok(Vec::new())
    }

    fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        let norm = {
            let first = self.params[0].gradients();
            let rest = self.params[1].gradients();
            let table = &self.table[1]; // counts once
            stored_norm(&[&first[..], &rest[..table.start], &rest[table.end..]])
        };
        let scale = clip_scale(norm, clip)?;
        for (adamw, params) in self.optimizers.iter_mut().zip(&self.params) {
            adamw.step(params, lr, scale)?;
        }
        Ok(norm)
    }
}

impl Unpipelined {
    /// The value of a parameter by its name.
    pub fn value(&self, name: &str) -> Option<Vec<f32>> {
        let of = |part: &Gpt| {
            let spec = part.params.specs().iter().find(|spec| spec.name == name)?;
            Some(part.params.values()[spec.range()].to_vec())
        };
        self.parts.iter().find_map(of)
    }
}
