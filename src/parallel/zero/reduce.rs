//! Gradients of stages 1 and 2 on their way to their owners.
//!
//! A bucket is a stretch of the model, from its end to its start, as DDP's. As soon as the backward pass has completed it,
//! each rank's part of it is reduced to that rank, and to no other: half of an all-reduce. In stage 1 the gradients lie in
//! the flat buffer, whole. In stage 2 a bucket has memory only from its first gradient until it has been reduced; what
//! remains is the rank's own share.
//!
//! Owners are DeepSpeed's: each rank has one stretch of each parameter group. So most buckets have one owner, and on a
//! network only its link to the others is busy: between two ranks, reducing all buckets takes as long as all-reducing them.
//! Megatron-LM and FSDP cut every bucket among all ranks.

use super::{Averaged, Stage, ZeroConfig};
use crate::comm::{self, Comm, Reduce};
use crate::parallel::ddp::{Bucket, fill_buckets};
use crate::parallel::partition::FlatGroup;
use crate::parallel::queue::Queue;
use crate::tensor::stored::add;
use crate::tensor::{Elsewhere, Params, Spec, Stored};
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sees to it that this rank's share of the gradients is averaged over all ranks; in stage 0, all gradients are.
pub(super) struct Reducer<T> {
    comm: Comm,
    stage: Stage,
    groups: Vec<FlatGroup>,
    /// This rank's part of each group, as places in the flat buffers.
    share: Vec<Range<usize>>,
    buckets: Vec<Bucket>,
    /// The bucket of each parameter, by its index.
    of: Vec<usize>,
    overlap: bool,
    /// Whether this backward pass ends a step.
    last: AtomicBool,
    step: Mutex<Step<T>>,
}

struct Step<T> {
    /// Stage 2: buckets between their first gradient and their last.
    filling: Vec<Option<Vec<T>>>,
    /// Stage 2: this rank's share, averaged, group by group.
    share: Vec<T>,
    /// Stretches of the model under way.
    under_way: Queue<Range<usize>, T>,
    averaged: Vec<Averaged>,
    /// Buckets that this backward pass has completed.
    completed: usize,
    /// Backward passes of this step that have completed all.
    passes: usize,
    peak_bytes: usize,
}

impl<T: Stored> Reducer<T> {
    /// Hooks into the model, whose parameter groups are divided in this way. In stage 2, gradients are kept here; else in the
    /// model's flat buffer.
    pub fn new(params: &Params, comm: &Comm, groups: &[FlatGroup], config: &ZeroConfig) -> Arc<Reducer<T>> {
        let (buckets, of) = fill_buckets(params, config.reduce_bucket);
        let held = |group: &FlatGroup| match config.stage {
            Stage::Zero => group.whole(),
            _ => group.range(comm.rank()),
        };
        let share: Vec<Range<usize>> = groups.iter().map(held).collect();
        let kept = if config.stage == Stage::Two { share.iter().map(Range::len).sum() } else { 0 };
        let step = Step {
            filling: buckets.iter().map(|_| None).collect(),
            share: vec![T::zeroed(); kept],
            under_way: Queue::default(),
            averaged: Vec::new(),
            completed: 0,
            passes: 0,
            peak_bytes: 0,
        };
        let (stage, overlap, groups) = (config.stage, config.overlap, groups.to_vec());
        let (comm, last, step) = (comm.clone(), AtomicBool::new(true), Mutex::new(step));
        let reducer = Arc::new(Reducer { comm, stage, groups, share, buckets, of, overlap, last, step });
        let hooked = reducer.clone();
        params.set_hook(Some(Box::new(move |params, spec| {
            hooked.gradient_complete(params, spec).map_err(candle_core::Error::wrap)
        })));
        if stage == Stage::Two {
            params.set_elsewhere(Some(reducer.clone()));
        }
        reducer
    }

    pub fn begin(&self) {
        let mut step = self.step();
        step.share.fill(T::zeroed());
        (step.completed, step.passes) = (0, 0);
    }

    pub fn synchronise(&self, last_micro_step: bool) {
        self.last.store(last_micro_step, Relaxed);
        self.step().completed = 0;
    }

    fn gradient_complete(&self, params: &Params, spec: &Spec) -> comm::Result<()> {
        if self.stage < Stage::Two && !self.last.load(Relaxed) {
            return Ok(());
        }
        let (number, mut step) = (self.of[spec.index], self.step());
        let bucket = &self.buckets[number];
        if bucket.complete.fetch_add(1, Relaxed) + 1 == bucket.parameters {
            bucket.complete.store(0, Relaxed);
            step.completed += 1;
            step.passes += usize::from(step.completed == self.buckets.len());
            let gradients = match step.filling[number].take() {
                Some(gradients) => gradients,
                None => params.stored_gradients::<T>()[bucket.range.clone()].to_vec(),
            };
            self.start(&mut step, bucket.range.clone(), gradients)?;
            let bytes = self.bytes(&step);
            step.peak_bytes = step.peak_bytes.max(bytes);
        }
        while let Some(reduced) = if self.overlap { step.under_way.ready()? } else { step.under_way.next()? } {
            self.arrived(params, &mut step, reduced);
        }
        Ok(())
    }

    // ANCHOR: reduce
    /// Sends the gradients of one bucket, which are those of `range`, to the ranks that own them.
    fn start(&self, step: &mut Step<T>, range: Range<usize>, mut gradients: Vec<T>) -> comm::Result<()> {
        if self.stage == Stage::Zero {
            let pending = self.comm.start_all_reduce(gradients, Reduce::Mean)?;
            step.under_way.push(range, pending);
            return Ok(());
        }
        let group = self.groups.iter().find(|group| group.whole().contains(&range.start));
        let owners: Vec<_> = group.into_iter().flat_map(|group| group.owners(range.clone())).collect();
        for (owner, held) in owners.into_iter().rev() {
            // From the end on: what is left is the bucket's beginning.
            let piece = match held.start - range.start {
                0 => std::mem::take(&mut gradients),
                start => gradients.split_off(start),
            };
            let pending = self.comm.start_reduce(piece, Reduce::Mean, owner)?;
            step.under_way.push(held, pending);
        }
        Ok(())
    }

    /// A reduced stretch goes where this rank keeps it, if it is the owner; the memory that it came in is freed.
    fn arrived(&self, params: &Params, step: &mut Step<T>, (range, mean, seen): (Range<usize>, Vec<T>, Averaged)) {
        step.averaged.push(seen);
        let is_here = |held: &Range<usize>| held.start <= range.start && range.end <= held.end;
        let Some(group) = self.share.iter().position(is_here) else { return };
        if self.stage == Stage::Two {
            // The sum over micro-steps.
            let before: usize = self.share[..group].iter().map(Range::len).sum();
            let at = before + range.start - self.share[group].start;
            add(&mut step.share[at..at + range.len()], &mean);
        } else {
            params.stored_gradients::<T>()[range].copy_from_slice(&mean);
        }
    }
    // ANCHOR_END: reduce

    /// What this rank's optimizers work on: a stretch of each group, as places in the flat buffers.
    pub fn share(&self) -> &[Range<usize>] {
        &self.share
    }

    /// Waits for everything under way.
    pub fn finish(&self, params: &Params) -> Result<Vec<Averaged>> {
        let mut step = self.step();
        while let Some(reduced) = step.under_way.next()? {
            self.arrived(params, &mut step, reduced);
        }
        let averaged = std::mem::take(&mut step.averaged);
        let (done, all) = (step.completed, self.buckets.len());
        ensure!(
            done == all,
            "{done} of {all} gradient buckets were averaged: a parameter got no gradient in this step"
        );
        Ok(averaged)
    }

    /// Backward passes of the last step whose gradients were reduced.
    pub fn passes(&self) -> usize {
        self.step().passes
    }

    /// Calls `read` with this rank's share of the averaged gradients, group by group.
    pub fn read<R>(&self, params: &Params, read: impl FnOnce(&[&[T]]) -> R) -> R {
        if self.stage < Stage::Two {
            let all = params.stored_gradients::<T>();
            return read(&self.share.iter().map(|held| &all[held.clone()]).collect::<Vec<_>>());
        }
        let step = self.step();
        let mut rest = &step.share[..];
        let of = |held: &Range<usize>| {
            let (group, others) = rest.split_at(held.len());
            rest = others;
            group
        };
        read(&self.share.iter().map(of).collect::<Vec<_>>())
    }

    /// Bytes of the share that is kept here.
    pub fn share_bytes(&self) -> usize {
        size_of::<T>() * self.step().share.capacity()
    }

    /// Bytes of buckets now, and the most that they ever were when a bucket had just been completed.
    pub fn bucket_bytes(&self) -> (usize, usize) {
        let step = self.step();
        (self.bytes(&step), step.peak_bytes)
    }

    fn bytes(&self, step: &Step<T>) -> usize {
        let filling: usize = step.filling.iter().flatten().map(Vec::len).sum();
        let under_way: usize = step.under_way.all().map(Range::len).sum();
        size_of::<T>() * (filling + under_way)
    }

    fn step(&self) -> MutexGuard<'_, Step<T>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Stored> Elsewhere for Reducer<T> {
    fn value(&self, spec: &Spec) -> candle_core::Result<(Arc<Vec<f32>>, Range<usize>)> {
        candle_core::bail!("parameter {} has no values: stage 2 keeps all of them in the model's buffer", spec.name)
    }

    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> candle_core::Result<()> {
        let (number, mut step) = (self.of[spec.index], self.step());
        let range = &self.buckets[number].range;
        let bucket = step.filling[number].get_or_insert_with(|| vec![T::zeroed(); range.len()]);
        T::change(&mut bucket[spec.range().start - range.start..][..spec.numel()], add);
        Ok(())
    }
}
