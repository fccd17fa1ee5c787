//! lab08 · Surviving bad steps
//!
//! One bad batch makes the loss jump. How does a run survive it?
//!
//! It goes back to a checkpoint before the jump, and skips the bad steps. All other steps must
//! train on the tokens that they would have had: a skipped step uses up its data, counts, and
//! teaches nothing, on all ranks or on none. Run `cargo run --bin lab08`: its first check has such
//! a training beside the [`SkippingTrainer`], with which all runs on the screen are made.

use crate::Job;
use crate::skipping::{Ranges, SkippingTrainer};
use anyhow::Result;
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::Zero;
use shardlab::train::Training;
use std::ops::RangeInclusive;

// ANCHOR: heart
/// Trains `steps`, and skips those in `ranges`. Returns the losses of the steps that were taken.
fn train_plainly(
    job: &Job,
    comm: &Comm,
    training: &mut Training,
    ranges: &Ranges,
    steps: RangeInclusive<usize>,
) -> Result<Vec<f64>> {
    let config = &job.config;
    let text = &job.corpus.train;
    let sampler = config.sampler(comm.rank());
    // Micro-batches that earlier steps have used up.
    let mut drawn = (steps.start() - 1) * config.grad_accum;
    let mut losses = Vec::new();
    for step in steps {
        // A skipped step uses up its micro-batches, and its learning rate. So each later step has
        // the data and the learning rate that it would have had. All ranks know the ranges: all of
        // them skip, or none.
        let first = drawn;
        drawn += config.grad_accum;
        if ranges.contains(step) {
            continue;
        }
        // The learning rate's schedule and dropout count steps from 0.
        let batches = (first..drawn).map(|number| sampler.nth(text, number, config.grad_accum));
        let micro_batches = training.with_passes(step - 1, batches.collect())?;
        let ran = training.passes(&micro_batches)?;
        training.average()?;
        training.update(step - 1)?;
        let mut loss = [training.loss(&ran)?];
        comm.all_reduce(&mut loss, Reduce::Mean)?;
        losses.push(loss[0]);
    }
    Ok(losses)
}
// ANCHOR_END: heart

// ANCHOR: survive
/// A run of four steps whose second one is bad. Returns the losses of the others.
fn survive_plainly(job: &Job, comm: &Comm, bad: &Ranges) -> Result<Vec<f64>> {
    let mut training = job.begin(comm)?;
    let nothing = Ranges::default();
    // A run saves its state after step 1, and goes on. Suppose that the loss jumps in step 2: then
    // the update of step 2 damages the weights, and step 3 trains damaged weights.
    let mut losses = train_plainly(job, comm, &mut training, &nothing, 1..=1)?;
    let saved = save(&mut training.zero)?;
    train_plainly(job, comm, &mut training, &nothing, 2..=3)?;
    // So it goes back to the saved state, and trains again without the bad step.
    resume(&mut training.zero, &saved)?;
    losses.extend(train_plainly(job, comm, &mut training, bad, 2..=4)?);
    Ok(losses)
}
// ANCHOR_END: survive

/// What a step changes on this rank: weights and both moments, fragment by fragment, and the number
/// of updates. A checkpoint needs no more than this and the number of the step.
struct Saved {
    updates: u64,
    fragments: Vec<[Vec<f32>; 3]>,
}

fn save(zero: &mut Zero) -> Result<Saved> {
    let mut fragments = Vec::new();
    zero.fragments(|_, _, state| {
        let all = [&*state.values, &*state.exp_avg, &*state.exp_avg_sq];
        fragments.push(all.map(<[f32]>::to_vec));
    })?;
    Ok(Saved { updates: zero.steps(), fragments })
}

fn resume(zero: &mut Zero, saved: &Saved) -> Result<()> {
    let mut fragments = saved.fragments.iter();
    zero.restore(saved.updates, |_, _, state| {
        // They come in the order in which they were saved.
        if let Some([values, exp_avg, exp_avg_sq]) = fragments.next() {
            state.values.copy_from_slice(values);
            state.exp_avg.copy_from_slice(exp_avg);
            state.exp_avg_sq.copy_from_slice(exp_avg_sq);
        }
    })
}

/// The losses of four steps without the second one: of the run above, and of a
/// [`SkippingTrainer`], which knows the bad step and never stops.
pub fn compare_with_the_trainer(comm: &Comm, job: &Job) -> Result<Beside> {
    let bad = Ranges::parse(&[2, 2])?;
    let lesson = survive_plainly(job, comm, &bad)?;

    let text = &job.corpus.train;
    let mut trainer = SkippingTrainer::new(job.begin(comm)?, text);
    trainer.ranges = bad;
    let mut expected = Vec::new();
    for _ in 1..=4 {
        expected.extend(trainer.step()?.outcome.loss());
    }
    Ok(Beside::of(comm, &lesson, &expected, 0.0)?)
}
