//! One rank runs its list of operations: the step of a pipeline.

use super::{Instruction, Op, Partition, Pipeline, Times, Work};
use crate::allocator;
use crate::comm::Comm;
use crate::data::Batch;
use crate::model::{Build, Chunk, Gpt, Input, Pass};
use crate::parallel::{Zero, wire};
use crate::plan::ModelShape;
use crate::tensor::{Activation, Deferred};
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// One rank's stages of a model, a GPT or any other that is made in [`Chunk`]s.
pub struct Stages<M = Gpt> {
    pub pipeline: Pipeline,
    /// The ranks of the pipeline, in the order of the stages.
    pub(super) group: Comm,
    /// One model per chunk. Their parameters are declared together: those of `chunks[0]` are all of
    /// them.
    pub chunks: Vec<M>,
    pub pace: Option<Pace>,
    /// The factor for the loss in the backward pass, as fp16 needs one; 1 changes nothing.
    pub loss_scale: f64,
    /// Experts of a layer: so many loads travel with activations and back, where one balancing loss
    /// is over all stages' layers.
    pub experts: usize,
}

/// The least time of a pass through one chunk. A rank that is faster sleeps for the rest. So ranks
/// that share a core behave like separate devices.
pub type Pace = Times;

/// A pass that has run.
#[derive(Clone, Copy, Debug)]
pub struct PassRecord {
    pub op: Op,
    /// When its inputs were there and the rank began to compute.
    pub start: Instant,
    pub end: Instant,
    /// Micro-batches whose activations this rank holds after it, over all chunks.
    pub live: usize,
    /// Bytes that the rank has allocated since the step began ([`allocator::live`]). Messages,
    /// which it has received or is about to send, do not count.
    pub bytes: isize,
}

/// A step that has run.
pub struct StepRecord {
    /// The loss of each micro-batch, times its weight, on the rank of the last stage; elsewhere
    /// empty.
    pub losses: Vec<f64>,
    pub passes: Vec<PassRecord>,
    /// Passes and messages, each with its begin and its end.
    pub instructions: Vec<(Instruction, Instant, Instant)>,
}

/// The result of a forward pass, kept for the backward pass.
struct ForwardResult {
    /// The activations with which the tape begins; `None` in the first stage, where it begins with
    /// tokens.
    input: Option<Activation>,
    /// Activations, or the loss.
    output: Activation,
}

/// A step between two instructions.
#[derive(Default)]
struct InFlight {
    /// The shape of activations between stages.
    activations: [usize; 3],
    /// Whether the program has separate passes for the weights' gradients.
    splits: bool,
    /// By chunk and micro-batch.
    kept: HashMap<(usize, usize), ForwardResult>,
    /// The weights' halves of backward passes, by chunk and micro-batch.
    deferred: HashMap<(usize, usize), Deferred>,
    /// Results that were received, or wait to be sent, by stage.
    results: HashMap<(usize, Op), Vec<f32>>,
}

impl InFlight {
    /// Micro-batches whose activations are here.
    fn live(&self) -> usize {
        self.kept.len() + self.deferred.len()
    }

    /// Bytes of results that were received, or wait to be sent.
    fn messages(&self) -> isize {
        let bytes = |result: &Vec<f32>| size_of_val(&result[..]) as isize;
        self.results.values().map(bytes).sum()
    }
}

impl Stages {
    /// The stages of `group`'s rank, of layers that `build` makes.
    ///
    /// # Errors
    /// If the layers cannot be divided among the stages, or `group` has not the pipeline's number
    /// of ranks.
    pub fn new(
        pipeline: Pipeline,
        group: &Comm,
        shape: &ModelShape,
        partition: Partition,
        build: &dyn Build,
    ) -> Result<Stages> {
        let layers = partition.layers(shape, pipeline.stages())?;
        Stages::of(pipeline, group, &layers, |mine| Ok(Gpt::chunks(shape, mine, build)?))
    }
}

impl<M: Chunk> Stages<M> {
    /// The stages of `group`'s rank, where stage s has `layers[s]`. `declare` makes the rank's
    /// chunks of their layers.
    ///
    /// # Errors
    /// If `group` has not the pipeline's number of ranks, if one rank has several chunks, and those
    /// of `declare`.
    pub fn of(
        pipeline: Pipeline,
        group: &Comm,
        layers: &[Range<usize>],
        declare: impl FnOnce(&[Range<usize>]) -> Result<Vec<M>>,
    ) -> Result<Stages<M>> {
        ensure!(
            group.size() == pipeline.ranks,
            "a pipeline of {} ranks on {}",
            pipeline.ranks,
            group.size()
        );
        ensure!(
            pipeline.ranks > 1 || pipeline.chunks == 1,
            "one rank needs no chunks: its stages would follow each other"
        );
        let mine = |chunk| layers[pipeline.stage(group.rank(), chunk)].clone();
        let chunks = declare(&(0..pipeline.chunks).map(mine).collect::<Vec<_>>())?;
        Ok(Stages {
            pipeline,
            group: group.clone(),
            chunks,
            pace: None,
            loss_scale: 1.0,
            experts: 0,
        })
    }

    /// The ranks of the pipeline, in the order of the stages.
    pub fn group(&self) -> &Comm {
        &self.group
    }

    /// Runs one step: the forward and backward passes of `program`, with their messages. Adds to
    /// the gradients, and lets `zero` average each one after the last micro-batch.
    ///
    /// Every rank gets the batches and passes of all micro-batches, although only the first stage
    /// reads tokens and only the last one targets. `activations` is their shape between stages:
    /// [S, L, D].
    ///
    /// # Errors
    /// If a pass or a message fails, or the program sends a result that it has not computed.
    pub fn step(
        &self,
        program: &[Instruction],
        micro_batches: &[(Batch, Pass)],
        activations: [usize; 3],
        zero: &Zero,
    ) -> Result<StepRecord> {
        let splits =
            |one: &Instruction| matches!(one, Instruction::Compute(op) if op.work == Work::Weights);
        let splits = program.iter().any(splits);
        let program = &mut program.iter().map(|&one| Ok(one));
        self.run(program, splits, micro_batches, activations, zero)
    }

    /// Runs one step, whose program may be made meanwhile. `splits`: whether it has separate passes
    /// for the weights' gradients.
    ///
    /// # Errors
    /// As [`Stages::step`], and those of `program`.
    pub fn run(
        &self,
        program: &mut dyn Iterator<Item = Result<Instruction>>,
        splits: bool,
        micro_batches: &[(Batch, Pass)],
        activations: [usize; 3],
        zero: &Zero,
    ) -> Result<StepRecord> {
        let mut held = InFlight { activations, splits, ..InFlight::default() };
        let mut ran = StepRecord {
            losses: Vec::new(),
            passes: Vec::new(),
            // A capacity for all, made here: its growth would count as activations.
            instructions: Vec::with_capacity(7 * micro_batches.len() * self.chunks.len()),
        };
        let rank = self.group.rank();
        let before = allocator::live();
        let count = micro_batches.len();
        // ANCHOR: step
        for instruction in program {
            let instruction = instruction?;
            let start = Instant::now();
            match instruction {
                Instruction::Recv { op, from } => {
                    let (_, pass) = &micro_batches[op.micro];
                    let result = self.recv(op, pass, activations, from)?;
                    held.results.insert((self.pipeline.stage(from, op.chunk), op), result);
                }
                Instruction::Compute(op) => {
                    zero.synchronise(op.micro + 1 == count);
                    let batch = &micro_batches[op.micro];
                    self.compute(op, batch, count, &mut held, &mut ran.losses)?;
                    self.keep_pace(op, start);
                    let bytes = allocator::live() - before - held.messages();
                    ran.passes.push(PassRecord {
                        op,
                        start,
                        end: Instant::now(),
                        live: held.live(),
                        bytes,
                    });
                }
                Instruction::Send { op, to } => {
                    let stage = self.pipeline.stage(rank, op.chunk);
                    let result = held.results.remove(&(stage, op));
                    let result =
                        result.with_context(|| format!("{op} is sent before it has run"))?;
                    self.send(op, &micro_batches[op.micro].1, &result, to)?;
                }
            }
            ran.instructions.push((instruction, start, Instant::now()));
        }
        // ANCHOR_END: step
        zero.synchronise(true); // tied gradients are averaged after all passes
        Ok(ran)
    }

    /// Receives the result of `op`, in the type of its pass, and then the loads of its layers.
    fn recv(&self, op: Op, pass: &Pass, activations: [usize; 3], from: usize) -> Result<Vec<f32>> {
        let group = self.group.tagged(self.tag(op));
        let mut result = vec![0.0; activations.iter().product()];
        wire::recv(&group, pass.precision, &mut result, from)?;
        if let Some(balance) = &pass.balance
            && let Some(mut sums) = balance.sums(self.experts)
        {
            group.labelled("loads").recv(&mut sums, from)?;
            balance.set_sums(sums);
        }
        Ok(result)
    }

    /// Sends the result of `op`, in the type of its pass, and then the loads of its layers.
    fn send(&self, op: Op, pass: &Pass, result: &[f32], to: usize) -> Result<()> {
        let group = self.group.tagged(self.tag(op));
        wire::send(&group, pass.precision, result, to)?;
        if let Some(balance) = &pass.balance
            && let Some(sums) = balance.sums(self.experts)
        {
            group.labelled("loads").send(&sums, to)?;
        }
        Ok(())
    }

    /// Runs one pass.
    fn compute(
        &self,
        op: Op,
        (batch, pass): &(Batch, Pass),
        micro_batches: usize,
        held: &mut InFlight,
        losses: &mut Vec<f64>,
    ) -> Result<()> {
        let stage = self.pipeline.stage(self.group.rank(), op.chunk);
        let first = stage == 0;
        let last = stage + 1 == self.pipeline.stages();
        let model = &self.chunks[op.chunk];
        let place = (op.chunk, op.micro);
        match op.work {
            Work::Forward => {
                let input = if first {
                    None
                } else {
                    Some(Activation::start(held.take(self, stage - 1, op)?, &held.activations)?)
                };
                let from = match &input {
                    None => Input::Tokens { ids: &batch.inputs, length: batch.length },
                    Some(x) => Input::Hidden(x),
                };
                let output = model.forward(from, &batch.targets, pass)?;
                if last {
                    losses.push(f64::from(output.scalar()?) * pass.weight.unwrap_or(1.0));
                } else {
                    held.results.insert((stage, op), output.numbers().to_vec());
                }
                held.kept.insert(place, ForwardResult { input, output });
            }
            Work::Backward => {
                let kept = held.kept.remove(&place);
                let ForwardResult { input, output } =
                    kept.with_context(|| format!("{op} before its forward pass"))?;
                let dy = if last {
                    // Gradients add up to those of the mean.
                    let scale = self.loss_scale * pass.weight.unwrap_or(1.0);
                    vec![scale as f32 * (1.0 / micro_batches as f64) as f32]
                } else {
                    held.take(self, stage + 1, op)?
                };
                if let Some(balance) = &pass.balance {
                    // Routers see every position, whether its target counts or not.
                    balance.scale(self.loss_scale / micro_batches as f64);
                }
                let mut weights = held.splits.then(Deferred::default);
                let mut gradients = output.backward(dy, weights.as_mut())?;
                if let Some(weights) = weights {
                    held.deferred.insert(place, weights);
                }
                if let Some(input) = input {
                    held.results.insert((stage, op), gradients.of(&input)?);
                }
            }
            Work::Weights => {
                let weights = held.deferred.remove(&place);
                weights.with_context(|| format!("{op} before its backward pass"))?.run()?;
            }
        }
        Ok(())
    }

    /// Sleeps until the pass has taken its least time.
    fn keep_pace(&self, op: Op, start: Instant) {
        let least = self.pace.map_or(0.0, |pace| pace.of(op.work));
        std::thread::sleep(Duration::from_secs_f64(least).saturating_sub(start.elapsed()));
    }

    /// Whether the messages that `op` needs are here.
    ///
    /// # Errors
    /// If the sender has ended.
    pub fn has_arrived(&self, op: Op) -> Result<bool> {
        let rank = self.group.rank();
        let mut others = self.pipeline.needs(rank, op).filter(|(other, _)| *other != rank);
        others.try_fold(true, |all, (from, op)| {
            Ok(all && self.group.tagged(self.tag(op)).probe(from)?)
        })
    }

    /// A message's tag says which pass made it, so messages of two chunks between the same two
    /// ranks cannot be confused.
    fn tag(&self, op: Op) -> u16 {
        let number = (op.micro * self.pipeline.chunks + op.chunk) * 2
            + usize::from(op.work == Work::Backward);
        (number % usize::from(Comm::MAX_TAG)) as u16
    }
}

impl InFlight {
    /// The result of the pass like `op` of a neighbouring stage.
    fn take<M>(&mut self, stages: &Stages<M>, stage: usize, op: Op) -> Result<Vec<f32>> {
        let other = Op { chunk: stage / stages.pipeline.ranks, ..op };
        let result = self.results.remove(&(stage, other));
        result
            .with_context(|| format!("{op} needs {other} of stage {stage}, which has not arrived"))
    }
}
