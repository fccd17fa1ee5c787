//! Life 2: four ranks, two pipeline stages of two tensor ranks each, from the files of life 1.
//!
//! Tensor ranks share every matrix, and between the layers every sequence. The two stages have half
//! of the blocks each, and both a copy of the token table.

use crate::blocks::{Layers, Line};
use crate::clip::{Gradients, clip};
use crate::files::{self, KINDS, Record, Saved};
use crate::parts::skip::Run;
use crate::parts::{Part, Parts, Scaler, load};
use crate::plan::{Plan, SIZES_2, STREAMS};
use crate::poison::Data;
use crate::sequence::Stage;
use crate::step::{self, Trained};
use crate::{Job, Report};
use anyhow::{Result, ensure};
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::mesh::Order;
use shardlab::model::{Chunk, Gpt, Pass, generate};
use shardlab::parallel::pipeline::{Instruction, Partition, Pipeline, Stages};
use shardlab::parallel::zero::Stage as ZeroStage;
use shardlab::parallel::{TensorParallel, Zero, ZeroConfig, unshard};
use shardlab::tensor::random::Stream;
use shardlab::tensor::{Copies, Params, Precision, Spec};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// One rank of life 2.
struct Meshed<'a> {
    plan: &'a Plan,
    parts: &'a Parts,
    world: &'a Comm,
    tensor: Comm,
    pipeline: Comm,
    stages: Stages<Stage>,
    /// The passes of this rank in a step, with their messages.
    program: Vec<Instruction>,
    /// The optimizer. There is one replica, so it divides nothing.
    zero: Zero,
    scaler: Scaler,
}

/// Trains from life 1's checkpoint in `folder` up to and with step `until`. After the plan's last
/// step, it saves the weights there, and returns what the model writes.
pub fn train(
    job: &Job,
    world: &Comm,
    skip: &[usize],
    until: usize,
    folder: &Path,
    report: Report,
) -> Result<Vec<u32>> {
    let Job { plan, parts, .. } = job;
    let checkpoint = files::folder(folder, plan.saved());
    let record = files::read_record(&checkpoint)?;
    let mut rank = Meshed::new(job, world, record.scaler)?;
    rank.load(&checkpoint, &record)?;

    // All four ranks work on the same sequences: one replica reads what two data ranks read.
    let run = Run {
        skip,
        rank: 0,
        ranks: 1,
        accumulation: STREAMS * plan.config.grad_accum,
        batch: plan.config.batch,
    };
    let data = Data { plan, text: job.text, batches: parts.batches };
    let mut counters = record.counters;
    while counters.global_steps < until {
        let train = &mut |batches: &[Batch], schedule| rank.train(batches, schedule);
        let step = step::next(parts.skip, &run, &mut counters, &data, train)?;
        if world.rank() == 0 {
            report(step);
        }
    }
    match until == plan.config.steps {
        true => rank.write(job, folder),
        false => Ok(Vec::new()),
    }
}

impl<'a> Meshed<'a> {
    fn new(job: &'a Job, world: &'a Comm, scaler: Scaler) -> Result<Meshed<'a>> {
        let Job { plan, parts, .. } = job;
        // My place on each axis, and with whom I share it.
        let place = (parts.mesh)(world.rank(), SIZES_2, Order::PipelineSlowest);
        let group = |members: &[usize], at: usize| {
            let first = members.first().copied().unwrap_or_default();
            world.split(first as u64, at as i64)
        };
        let tensor = group(&place.tensor, place.at.tensor)?.named("tensor");
        let pipeline = group(&place.pipeline, place.at.pipeline)?.named("pipeline");
        let data = group(&place.data, place.at.data)?.named("data");

        // Tensor ranks share the matrices, and the positions between them. Pipeline ranks divide
        // the layers.
        let shared = TensorParallel::new(tensor.clone()).sequence_parallel();
        let shape = Pipeline {
            ranks: SIZES_2.pipeline,
            chunks: 1,
            micro_batches: STREAMS * plan.config.grad_accum,
        };
        let layers = Partition::Uniform.layers(&plan.config.shape, shape.stages())?;
        let stages = Stages::of(shape, &pipeline, &layers, |mine| {
            let stage = |layers: &std::ops::Range<usize>| {
                Stage::new(&plan.config.shape, layers.clone(), &shared, parts.mlp)
            };
            mine.iter().map(stage).collect()
        })?;
        let order = (parts.order)(pipeline.rank(), pipeline.size(), shape.micro_batches);
        let mut config = ZeroConfig::new(ZeroStage::Ddp, Precision::F32, plan.config.adamw);
        // Both ends' gradients of the token table are added up below, by a part.
        config.add_tied = false;
        let zero = Zero::init(stages.chunks[0].params(), &data, config, plan.config.seed)?;
        Ok(Meshed {
            plan,
            parts,
            world,
            program: shape.with_messages(pipeline.rank(), &order),
            zero: zero.with_pipeline(&pipeline)?,
            stages,
            tensor,
            pipeline,
            scaler,
        })
    }
}

impl Meshed<'_> {
    fn train(&mut self, batches: &[Batch], schedule: usize) -> Result<Trained> {
        let (plan, parts) = (self.plan, self.parts);
        let scale = self.scaler.scale;
        let lr = (parts.schedule)(&plan.config.schedule, schedule);

        // All micro-batches, forward and backward, in this rank's order. The part `mlp` is in the
        // layers.
        let with_pass = |batch: &Batch| (batch.clone(), Pass::training(None));
        let micro_batches: Vec<_> = batches.iter().map(with_pass).collect();
        let activations = [
            plan.config.batch,
            plan.config.shape.block / self.tensor.size(),
            plan.config.shape.embd,
        ];
        self.stages.loss_scale = scale;
        self.zero.begin()?;
        let ran = self.stages.step(&self.program, &micro_batches, activations, &self.zero)?;
        self.zero.finish()?;

        // A tensor rank has seen its positions only, so of gradients that both ranks have, each has
        // a summand. And each end of the pipeline has a summand of the token table's.
        self.sum(&self.tensor, |copies| matches!(copies, Copies::Same { .. }))?;
        self.sum(&self.pipeline, |copies| matches!(copies, Copies::Tied { .. }))?;

        // One norm of everything, one factor, and a step of Adam for what is here.
        let (shard, padding) = self.counted();
        let gradients = Gradients { shard: &shard, padding, replicated: &[] };
        let clipped = clip(parts, self.world, &gradients, &mut self.scaler, plan.config.clip)?;
        if let Some(clipped) = clipped {
            self.zero.update(lr, clipped.factor)?;
        }

        let mut loss = [ran.losses.iter().sum::<f64>() / batches.len() as f64];
        self.pipeline.broadcast(&mut loss, self.pipeline.size() - 1)?; // the last stage has it
        Ok(Trained {
            loss: loss[0],
            norm: clipped.map(|clipped| clipped.norm),
            lr,
            scale,
        })
    }

    fn params(&self) -> &Arc<Params> {
        self.stages.chunks[0].params()
    }

    /// Adds up the group's gradients of the parameters of one kind, all in one vector.
    fn sum(&self, group: &Comm, kind: fn(Copies) -> bool) -> Result<()> {
        let specs = self.params().specs().iter();
        let specs: Vec<&Arc<Spec>> = specs.filter(|spec| kind(spec.copies)).collect();
        let mut gradients = self.params().gradients();
        let of_all = specs.iter().flat_map(|spec| gradients[spec.range()].to_vec());
        let mut together: Vec<f32> = of_all.collect();
        (self.parts.ring)(group, &mut together)?;
        let mut rest = &together[..];
        for spec in specs {
            let (sum, behind) = rest.split_at(spec.numel());
            gradients[spec.range()].copy_from_slice(sum);
            rest = behind;
        }
        Ok(())
    }

    /// The gradients that count in the norm on this rank: of those that several ranks have, the
    /// first rank counts them. Rows of the token table beyond the last character are padding, and
    /// at the end.
    fn counted(&self) -> (Vec<f32>, usize) {
        let gradients = self.params().gradients();
        let mut counted = Vec::new();
        let mut all = 0;
        for spec in self.params().specs().iter().filter(|spec| spec.copies.counts()) {
            let here = &gradients[spec.range()];
            spec.runs(0..spec.numel(), |run, _| counted.extend(&here[run]));
            all += spec.numel();
        }
        let padding = all - counted.len();
        counted.resize(all, crate::life1::SCALE as f32); // what was in this memory before
        (counted, padding)
    }

    /// Loads the checkpoint. Each rank reads its share of every parameter, all ranks gather the
    /// shares, and each keeps what its stage and its place among the tensor ranks need.
    fn load(&mut self, folder: &Path, record: &Record) -> Result<()> {
        let layers = Layers::new(&self.plan.config.shape)?;
        let mut loaded: HashMap<&str, [Vec<f32>; 3]> = HashMap::new();
        for (i, kind) in KINDS.iter().enumerate() {
            for (number, line) in layers.lines().enumerate() {
                let mut saved = Saved::new(folder, record, kind, number);
                for (spec, parameter) in line.0.iter().zip(self.gathered(line, &mut saved)?) {
                    loaded.entry(&spec.name).or_default()[i] = parameter;
                }
            }
        }
        self.zero.restore(record.optimizer_steps, |fragment, elements, state| {
            let spec = &fragment.spec;
            let whole = &loaded[&spec.whole.name[..]];
            let mine = [state.values, state.exp_avg, state.exp_avg_sq];
            for (whole, mine) in whole.iter().zip(mine) {
                mine.fill(0.0); // padding, such as the vocabulary's
                spec.runs(elements.clone(), |run, at| {
                    let mine = &mut mine[run.start - elements.start..run.end - elements.start];
                    mine.copy_from_slice(&whole[at..at + run.len()]);
                });
            }
        })
    }

    /// One line of the old ranks' files: whole parameters, of which every rank has read a share.
    fn gathered(&self, line: &Line, saved: &mut Saved) -> Result<Vec<Vec<f32>>> {
        let sizes: Vec<usize> = line.0.iter().map(|spec| spec.numel()).collect();
        let (rank, ranks) = (self.world.rank(), self.world.size());
        let shares = (self.parts.load)(saved, &sizes, rank, ranks);
        // The library's version reads everything: the same numbers, if the shares are right.
        let right = load::library(saved, &sizes, 0, 1);
        let mut parameters = Vec::new();
        for ((mut share, spec), right) in shares.into_iter().zip(&line.0).zip(right) {
            share.resize(spec.numel().div_ceil(ranks), 0.0);
            let mut whole = self.world.gathered(&share)?;
            whole.truncate(spec.numel());
            ensure!(
                whole == right,
                "{} is not what life 1 has saved, if four ranks read it with {}",
                spec.name,
                Part::Load.exercise()
            );
            parameters.push(whole);
        }
        Ok(parameters)
    }

    /// Puts the model together, saves its weights, and writes a text with it. Rank 0 does.
    fn write(&self, job: &Job, folder: &Path) -> Result<Vec<u32>> {
        let gpt = Gpt::new(&self.plan.config.shape)?;
        gpt.params.allocate(self.plan.config.seed);
        unshard(&[&self.pipeline, &self.tensor], None, self.params(), &gpt.params)?;
        if self.world.rank() > 0 {
            return Ok(Vec::new());
        }
        let end = files::folder(folder, self.plan.config.steps);
        files::write(&end, 0, KINDS[0], &gpt.params.values())?;
        let prompt = &job.text[..8.min(self.plan.config.shape.block)];
        let stream = Stream::new(self.plan.config.seed, "text");
        // After a short run it has learned too little.
        let writes = if self.plan.is_compared() { 0 } else { 320 };
        Ok(generate(&gpt, prompt, writes, 0.7, stream)?)
    }
}
