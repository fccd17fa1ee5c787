//! Life 1: two data ranks with fully sharded blocks, until the run is killed.
//!
//! Every rank holds a slice of each block's parameters and of Adam's moments. It gathers a block
//! for a pass and frees it again. The token table, the positions and the last norm are on every
//! rank.

use crate::blocks::{Layers, Passes};
use crate::clip::{Gradients, clip};
use crate::files::{self, KINDS, Record};
use crate::meter::Meter;
use crate::parts::skip::{Counters, Run};
use crate::parts::{Blocks, Part, Parts, Scaler};
use crate::plan::{PAGE, Plan, STREAMS};
use crate::poison::Data;
use crate::step::{self, Rank, Trained};
use crate::{Job, Report};
use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::optim::{AdamW, Fragment};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;

/// One rank of life 1.
struct Sharded<'a> {
    plan: &'a Plan,
    parts: &'a Parts,
    comm: &'a Comm,
    meter: &'a Meter,
    data: Data<'a>,
    layers: Layers,
    /// This rank's slice of each block, with padding at the end of the last rank's.
    slices: Vec<Vec<f32>>,
    /// One optimizer per block for the slice, and one for the ends.
    adamw: Vec<AdamW>,
    adamw_of_ends: AdamW,
    scaler: Scaler,
}

/// Trains up to and with step `until`, and saves into `folder` if there is one. `skip`: first and
/// last step of each range to skip.
pub fn train(
    job: &Job,
    comm: &Comm,
    skip: &[usize],
    until: usize,
    folder: Option<&Path>,
    report: Report,
) -> Result<()> {
    let Job { plan, parts, .. } = job;
    let meter = Meter::new(comm);
    let mut rank = Sharded::new(job, comm, &meter)?;
    let run = Run {
        skip,
        rank: comm.rank(),
        ranks: comm.size(),
        accumulation: plan.accumulation,
        batch: plan.batch,
    };
    let mut counters = Counters::default();
    while counters.global_steps < until {
        let step = step::next(parts.skip, &run, &mut counters, (comm, &meter), &mut rank)?;
        if let Some(folder) = folder.filter(|_| step.step.is_multiple_of(plan.save_every)) {
            rank.save(folder, counters)?;
        }
        if comm.rank() == 0 {
            report(step);
        }
    }
    Ok(())
}

impl<'a> Sharded<'a> {
    fn new(job: &'a Job, comm: &'a Comm, meter: &'a Meter) -> Result<Sharded<'a>> {
        let Job { plan, parts, text } = job;
        let layers = Layers::new(&plan.shape, plan.seed)?;
        let mut slices = Vec::new();
        let mut adamw = Vec::new();
        for (params, _) in &layers.blocks {
            // Equal slices of whole pages; padding follows the parameters.
            let numel = params.numel();
            let each = numel.div_ceil(comm.size()).next_multiple_of(PAGE);
            let mine = mine(numel, each, comm.rank());
            params.allocate(plan.seed);
            let mut slice = params.values()[mine.clone()].to_vec();
            params.set_values(shardlab::tensor::Storage::Unallocated);
            params.set_gradients(shardlab::tensor::Storage::Unallocated);
            slice.resize(each, 0.0);
            slices.push(slice);
            let shard = Fragment::of_range(params.specs(), mine);
            adamw.push(AdamW::sharded::<f32>(plan.adamw, shard, &|_, _, _| (), None)?);
        }
        Ok(Sharded {
            plan,
            parts,
            comm,
            meter,
            data: Data { plan, text, batches: parts.batches },
            adamw_of_ends: AdamW::new(plan.adamw, &layers.ends),
            layers,
            slices,
            adamw,
            scaler: (parts.scaler.new)(SCALE, 1.0, 100, 2),
        })
    }

    /// Of block `block`, how many numbers of this rank's slice are parameters.
    fn real(&self, block: usize) -> usize {
        let numel = self.layers.blocks[block].0.numel();
        mine(numel, self.slices[block].len(), self.comm.rank()).len()
    }
}

/// The scale of a run's first loss.
pub const SCALE: f64 = 65_536.0;

/// The parameters in a rank's slice.
fn mine(numel: usize, each: usize, rank: usize) -> Range<usize> {
    numel.min(rank * each)..numel.min((rank + 1) * each)
}

impl Rank for Sharded<'_> {
    fn read(&mut self, first: usize) -> Result<Batch> {
        self.data.batch(self.meter, first)
    }

    fn train(&mut self, batches: &[Batch], schedule: usize) -> Result<Trained> {
        let (parts, meter, comm) = (self.parts, self.meter, self.comm);
        let scale = self.scaler.scale;
        let lr = meter.part(Part::Schedule, || (parts.schedule)(&self.plan.schedule, schedule));

        // `average` runs the micro-batches and makes the mean of the gradients that every rank has.
        // For each micro-batch, `gather` runs both passes block by block, and returns this rank's
        // slices of the blocks' mean gradients: they add up here.
        let zeros = |slice: &Vec<f32>| vec![0.0; slice.len()];
        let sums = RefCell::new(self.slices.iter().map(zeros).collect::<Vec<Vec<f32>>>());
        let losses = RefCell::new(Vec::new());
        let failed = Cell::new(None);
        let mut ends = vec![0.0; self.layers.ends.numel()];
        let backward = |micro: usize, gradients: &mut [f32]| {
            let ran = meter.engine(|| self.passes(&batches[micro], scale, gradients));
            match ran {
                Ok((loss, means)) => {
                    losses.borrow_mut().push(loss);
                    let mut sums = sums.borrow_mut();
                    sums.iter_mut().zip(&means).for_each(|(sum, more)| add(sum, more));
                }
                Err(error) => failed.set(Some(error)),
            }
        };
        let sum = |data: &mut [f32]| meter.part(Part::Ring, || (parts.ring)(comm, data));
        let averaged = meter.part(Part::Average, || {
            (parts.average)(&sum, comm.size(), batches.len(), &mut ends, &backward)
        });
        if let Some(error) = failed.take() {
            return Err(error);
        }
        averaged?;
        let mut slices = sums.into_inner();
        for g in slices.iter_mut().flatten() {
            *g /= batches.len() as f32;
        }

        // One norm of everything, one factor, and a step of Adam for what is here.
        let (shard, padding) = self.flat(&slices);
        let gradients = Gradients { shard: &shard, padding, replicated: &ends };
        let clipped = clip(parts, meter, comm, &gradients, &mut self.scaler, self.plan.clip)?;
        if let Some(clipped) = clipped {
            for (block, adamw) in self.adamw.iter_mut().enumerate() {
                let real =
                    mine(self.layers.blocks[block].0.numel(), slices[block].len(), comm.rank())
                        .len();
                let values = &mut self.slices[block][..real];
                adamw.update(values, &slices[block][..real], lr, clipped.factor)?;
            }
            let mut values = self.layers.ends.values_mut();
            self.adamw_of_ends.update(&mut values[..], &ends, lr, clipped.factor)?;
        }

        let losses = losses.into_inner();
        let mut loss = [losses.iter().sum::<f64>() / losses.len() as f64];
        comm.all_reduce(&mut loss, Reduce::Mean)?;
        Ok(Trained {
            loss: loss[0],
            norm: clipped.map(|clipped| clipped.norm),
            lr,
            scale,
        })
    }
}

impl Sharded<'_> {
    /// Both passes of one micro-batch. Adds the gradients of what every rank has to `ends`. Returns
    /// the loss, and this rank's slices of the blocks' gradients, the means over ranks.
    fn passes(&self, batch: &Batch, scale: f64, ends: &mut [f32]) -> Result<(f64, Vec<Vec<f32>>)> {
        self.layers.ends.zero_gradients();
        let mut model = Metered {
            passes: Passes::new(&self.layers, batch, scale)?,
            meter: self.meter,
        };
        let means = self
            .meter
            .part(Part::Gather, || (self.parts.gather)(self.comm, &self.slices, &mut model))?;
        let lengths = |all: &[Vec<f32>]| all.iter().map(Vec::len).collect::<Vec<_>>();
        anyhow::ensure!(
            lengths(&means) == lengths(&self.slices),
            "{} returned gradients of {:?} numbers for slices of {:?}",
            Part::Gather.exercise(),
            lengths(&means),
            lengths(&self.slices)
        );
        add(ends, &self.layers.ends.gradients());
        Ok((model.passes.loss, means))
    }

    /// All numbers of this rank's gradients, then all padding: as many numbers as there are at the
    /// end.
    fn flat(&self, slices: &[Vec<f32>]) -> (Vec<f32>, usize) {
        let mut flat = Vec::new();
        for (block, slice) in slices.iter().enumerate() {
            flat.extend(&slice[..self.real(block)]);
        }
        let padding = slices.iter().map(Vec::len).sum::<usize>() - flat.len();
        // Nobody clears the padding of this memory: it has what was here before.
        flat.resize(flat.len() + padding, SCALE as f32);
        (flat, padding)
    }

    /// Saves this rank's part. The checkpoint has its name when all parts are there.
    fn save(&mut self, run: &Path, counters: Counters) -> Result<()> {
        let folder = files::folder(run, counters.global_steps);
        let part = folder.with_extension("part");
        std::fs::create_dir_all(&part)?;
        let mut lines: [Vec<Vec<f32>>; 3] = Default::default();
        for (slice, adamw) in self.slices.iter_mut().zip(&mut self.adamw) {
            let [values, m, v] = state(adamw, slice)?;
            let padded = |mut line: Vec<f32>| {
                line.resize(slice.len(), 0.0);
                line
            };
            lines[0].push(padded(values));
            lines[1].push(padded(m));
            lines[2].push(padded(v));
        }
        let owner = format!("rank{}", self.comm.rank());
        for (kind, lines) in KINDS.iter().zip(&lines) {
            let lines: Vec<&[f32]> = lines.iter().map(|line| &line[..]).collect();
            files::write(&part, &owner, kind, &lines)?;
        }
        if self.comm.rank() == 0 {
            let ends = state(&mut self.adamw_of_ends, &mut self.layers.ends.values_mut())?;
            for (kind, line) in KINDS.iter().zip(&ends) {
                files::write(&part, "ends", kind, &[line])?;
            }
        }
        self.comm.barrier()?; // all files are written
        if self.comm.rank() == 0 {
            let record = Record {
                counters,
                scaler: self.scaler,
                optimizer_steps: self.adamw_of_ends.steps(),
                ranks: self.comm.size(),
                slices: self.slices.iter().map(Vec::len).collect(),
            };
            files::finish(&part, &folder, &record)?;
        }
        self.comm.barrier()?;
        Ok(())
    }
}

/// The values and both moments that an optimizer has, without padding.
fn state(adamw: &mut AdamW, values: &mut [f32]) -> Result<[Vec<f32>; 3]> {
    let mut lines: [Vec<f32>; 3] = Default::default();
    let real = Fragment::numel(adamw.fragments());
    adamw.visit(&mut values[..real], |_, _, state| {
        lines[0].extend(&*state.values);
        lines[1].extend(&*state.exp_avg);
        lines[2].extend(&*state.exp_avg_sq);
    })?;
    Ok(lines)
}

fn add(sum: &mut [f32], more: &[f32]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

/// The blocks as the part `gather` sees them. Its interface has no errors: one of the library ends
/// the rank.
struct Metered<'a> {
    passes: Passes<'a>,
    meter: &'a Meter,
}

impl Blocks for Metered<'_> {
    fn numel(&self, block: usize) -> usize {
        self.passes.numel(block)
    }

    fn forward(&mut self, block: usize, parameters: &[f32]) {
        let ran = self.meter.engine(|| self.passes.forward(block, parameters));
        ran.unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn backward(&mut self, block: usize, parameters: &[f32]) -> Vec<f32> {
        let ran = self.meter.engine(|| self.passes.backward(block, parameters));
        ran.unwrap_or_else(|error| panic!("{error:#}"))
    }
}

/// Streams and ranks are the same number in this life.
const _: () = assert!(STREAMS == crate::plan::RANKS_1);
