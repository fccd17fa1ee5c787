//! Life 1: two data ranks with fully sharded blocks, until the run is killed.
//!
//! Every rank holds a slice of each block's parameters and of Adam's moments. It gathers a block
//! for a pass and frees it again. The token table, the positions and the last norm are on every
//! rank.

use crate::blocks::{Layers, Line, Passes};
use crate::clip::{Gradients, clip};
use crate::files::{self, KINDS, Record};
use crate::parts::skip::{Counters, Run};
use crate::parts::{Blocks, Parts, Scaler};
use crate::plan::{PAGE, Plan};
use crate::poison::Data;
use crate::step::{self, Trained};
use crate::{Job, Report};
use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::optim::AdamW;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;

/// One rank of life 1.
struct Sharded<'a> {
    plan: &'a Plan,
    parts: &'a Parts,
    comm: &'a Comm,
    layers: Layers,
    /// This rank's slice of each block, with padding at the end of the last rank's.
    slices: Vec<Vec<f32>>,
    /// The parameters that every rank has.
    ends: Vec<f32>,
    /// For the slices without padding, and the ends.
    adamw: AdamW,
    scaler: Scaler,
}

/// Trains up to and with step `until`, and saves into `folder`. `skip`: first and last step of each
/// range to skip.
pub fn train(
    job: &Job,
    comm: &Comm,
    skip: &[usize],
    until: usize,
    folder: &Path,
    report: Report,
) -> Result<()> {
    let Job { plan, parts, .. } = job;
    let mut rank = Sharded::new(job, comm)?;
    let run = Run {
        skip,
        rank: comm.rank(),
        ranks: comm.size(),
        accumulation: plan.config.grad_accum,
        batch: plan.config.batch,
    };
    let data = Data { plan, text: job.text, batches: parts.batches };
    let mut counters = Counters::default();
    while counters.global_steps < until {
        let train = &mut |batches: &[Batch], schedule| rank.train(batches, schedule);
        let step = step::next(parts.skip, &run, &mut counters, &data, train)?;
        if step.step.is_multiple_of(plan.save_every) {
            rank.save(folder, counters)?;
        }
        if comm.rank() == 0 {
            report(step);
        }
    }
    Ok(())
}

impl<'a> Sharded<'a> {
    fn new(job: &'a Job, comm: &'a Comm) -> Result<Sharded<'a>> {
        let Job { plan, parts, .. } = job;
        let layers = Layers::new(&plan.config.shape)?;
        let fragments = layers.fragments(|line| mine(line, comm));
        let first = |block: &Line| {
            padded(&block.initial(plan.config.seed)[mine(block, comm)], each(block, comm))
        };
        Ok(Sharded {
            plan,
            parts,
            comm,
            slices: layers.blocks.iter().map(first).collect(),
            ends: layers.ends.initial(plan.config.seed),
            adamw: AdamW::sharded::<f32>(plan.config.adamw, fragments, &|_, _, _| (), None)?,
            layers,
            scaler: Scaler::new(SCALE, 1.0, 100, 2),
        })
    }

    /// The numbers of slices without padding, then those of the ends.
    fn flat(&self, slices: &[Vec<f32>], ends: &[f32]) -> Vec<f32> {
        let mut flat = Vec::new();
        for (block, slice) in self.layers.blocks.iter().zip(slices) {
            flat.extend(&slice[..mine(block, self.comm).len()]);
        }
        flat.extend(ends);
        flat
    }

    /// The slices and the ends of which [`Sharded::flat`] makes one vector.
    fn split(&self, flat: &[f32]) -> (Vec<Vec<f32>>, Vec<f32>) {
        let mut rest = flat;
        let mut slices = Vec::new();
        for block in &self.layers.blocks {
            let (slice, behind) = rest.split_at(mine(block, self.comm).len());
            slices.push(padded(slice, each(block, self.comm)));
            rest = behind;
        }
        (slices, rest.to_vec())
    }
}

/// The scale of a run's first loss.
pub const SCALE: f64 = 65_536.0;

/// Numbers in each rank's slice of a line: equal slices of whole pages.
fn each(line: &Line, comm: &Comm) -> usize {
    line.numel().div_ceil(comm.size()).next_multiple_of(PAGE)
}

/// The parameters in this rank's slice. Padding follows them.
fn mine(line: &Line, comm: &Comm) -> Range<usize> {
    let each = each(line, comm);
    let end = |rank: usize| line.numel().min(rank * each);
    end(comm.rank())..end(comm.rank() + 1)
}

fn padded(numbers: &[f32], len: usize) -> Vec<f32> {
    let mut padded = numbers.to_vec();
    padded.resize(len, 0.0);
    padded
}

impl Sharded<'_> {
    fn train(&mut self, batches: &[Batch], schedule: usize) -> Result<Trained> {
        let (parts, comm) = (self.parts, self.comm);
        let scale = self.scaler.scale;
        let lr = (parts.schedule)(&self.plan.config.schedule, schedule);

        // `average` runs the micro-batches and makes the mean of the gradients that every rank has.
        // For each micro-batch, `gather` runs both passes block by block, and returns this rank's
        // slices of the blocks' mean gradients: they add up here.
        let zeros = |slice: &Vec<f32>| vec![0.0; slice.len()];
        let sums = RefCell::new(self.slices.iter().map(zeros).collect::<Vec<Vec<f32>>>());
        let losses = RefCell::new(Vec::new());
        let failed = Cell::new(None);
        let mut ends = vec![0.0; self.ends.len()];
        let backward = |micro: usize, gradients: &mut [f32]| match self.passes(
            &batches[micro],
            scale,
            gradients,
        ) {
            Ok((loss, means)) => {
                losses.borrow_mut().push(loss);
                let mut sums = sums.borrow_mut();
                for (sum, mean) in sums.iter_mut().flatten().zip(means.iter().flatten()) {
                    *sum += mean;
                }
            }
            Err(error) => failed.set(Some(error)),
        };
        let sum = |data: &mut [f32]| (parts.ring)(comm, data);
        let averaged = (parts.average)(&sum, comm.size(), batches.len(), &mut ends, &backward);
        if let Some(error) = failed.take() {
            return Err(error);
        }
        averaged?;
        let mut slices = sums.into_inner();
        for g in slices.iter_mut().flatten() {
            *g /= batches.len() as f32;
        }

        // One norm of everything, one factor, and a step of Adam for what is here.
        let flat = self.flat(&slices, &ends);
        let mut shard = flat[..flat.len() - ends.len()].to_vec();
        let padding = slices.iter().map(Vec::len).sum::<usize>() - shard.len();
        // Nobody clears the padding of this memory: it has what was here before.
        shard.resize(shard.len() + padding, SCALE as f32);
        let gradients = Gradients { shard: &shard, padding, replicated: &ends };
        let clipped = clip(parts, comm, &gradients, &mut self.scaler, self.plan.config.clip)?;
        if let Some(clipped) = clipped {
            let mut values = self.flat(&self.slices, &self.ends);
            self.adamw.update(&mut values[..], &flat, lr, clipped.factor)?;
            (self.slices, self.ends) = self.split(&values);
        }

        let losses = losses.into_inner();
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        Ok(Trained {
            loss: comm.reduced(loss, Reduce::Mean)?,
            norm: clipped.map(|clipped| clipped.norm),
            lr,
            scale,
        })
    }

    /// Both passes of one micro-batch. Adds the gradients of what every rank has to `ends`. Returns
    /// the loss, and this rank's slices of the blocks' gradients, the means over ranks.
    fn passes(&self, batch: &Batch, scale: f64, ends: &mut [f32]) -> Result<(f64, Vec<Vec<f32>>)> {
        let mut passes = Passes {
            layers: &self.layers,
            batch,
            scale,
            ends: &self.ends,
            ends_gradients: ends,
            kept: Vec::new(),
            dy: None,
            loss: f64::NAN,
        };
        let means = (self.parts.gather)(self.comm, &self.slices, &mut passes)?;
        Ok((passes.loss, means))
    }

    /// Saves this rank's slices.
    fn save(&mut self, run: &Path, counters: Counters) -> Result<()> {
        let folder = files::folder(run, counters.global_steps);
        let mut values = self.flat(&self.slices, &self.ends);
        let mut kinds: [Vec<f32>; 3] = Default::default();
        self.adamw.visit(&mut values[..], |_, _, state| {
            kinds[0].extend(&*state.values);
            kinds[1].extend(&*state.exp_avg);
            kinds[2].extend(&*state.exp_avg_sq);
        })?;
        let last = &self.layers.ends;
        for (kind, numbers) in KINDS.iter().zip(&kinds) {
            let (mut slices, ends) = self.split(numbers);
            slices.push(padded(&ends[mine(last, self.comm)], each(last, self.comm)));
            files::write(&folder, self.comm.rank(), kind, &slices.concat())?;
        }
        self.comm.barrier()?; // all files are written
        if self.comm.rank() == 0 {
            let lines = self.layers.lines();
            let record = Record {
                counters,
                scaler: self.scaler,
                optimizer_steps: self.adamw.steps(),
                slices: lines.map(|line| each(line, self.comm)).collect(),
            };
            files::finish(&folder, &record)?;
        }
        self.comm.barrier()?;
        Ok(())
    }
}

/// The blocks as the part `gather` sees them. Its interface has no errors: one of the library ends
/// the rank.
impl Blocks for Passes<'_> {
    fn numel(&self, block: usize) -> usize {
        self.layers.blocks[block].numel()
    }

    fn forward(&mut self, block: usize, parameters: &[f32]) {
        let ran = self.run_forward(block, parameters);
        ran.unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn backward(&mut self, block: usize, parameters: &[f32]) -> Vec<f32> {
        let ran = self.run_backward(block, parameters);
        ran.unwrap_or_else(|error| panic!("{error:#}"))
    }
}
