//! Gradients of stages 1 and 2 on their way to their owners.
//!
//! A bucket is a range of the model, from its end to its start, as DDP's. As soon as the backward pass has completed it,
//! each rank's part of it is reduced to that rank, and to no other: half of an all-reduce. In stage 1 the gradients lie in
//! the flat buffer, whole. In stage 2 a bucket has memory only from its first gradient until it has been reduced; what
//! remains is the rank's own share.
//!
//! Owners are DeepSpeed's: each rank has one range of each parameter group. So most buckets have one owner, and on a
//! network only its link to the others is busy: between two ranks, reducing all buckets takes as long as all-reducing them.
//! Megatron-LM and FSDP cut every bucket among all ranks.

use super::{Averaged, Stage, ZeroConfig};
use crate::comm::{self, Comm, Reduce};
use crate::parallel::buckets::{Buckets, Step, flat_ranges};
use crate::parallel::partition::FlatGroup;
use crate::tensor::stored::add;
use crate::tensor::{Collect, Home, Listener, Params, Spec, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Averages this rank's share of the gradients over all ranks.
pub(super) struct ToOwners<T> {
    comm: Comm,
    stage: Stage,
    groups: Vec<FlatGroup>,
    /// This rank's part of each group, as offsets in the flat buffers.
    share: Vec<Range<usize>>,
    ranges: Vec<Range<usize>>,
    /// Each collective carries a range of the flat buffers to its owner.
    buckets: Buckets<Range<usize>, T>,
    overlap: bool,
    /// Whether this backward pass ends a step.
    last: AtomicBool,
    /// Stage 2: this rank's share, averaged, group by group.
    kept: Mutex<Vec<T>>,
}

impl<T: Stored> ToOwners<T> {
    /// Hooks into the model, whose parameter groups are divided in this way; `share` is this rank's part of each. In stage 2, gradients are kept here; else in the
    /// model's flat buffer.
    pub fn new(
        params: &Arc<Params>,
        comm: &Comm,
        groups: &[FlatGroup],
        share: &[Range<usize>],
        config: &ZeroConfig,
    ) -> (Arc<ToOwners<T>>, Listener) {
        let (ranges, of) = flat_ranges(params, config.reduce_bucket);
        let kept = if config.stage == Stage::Two { share.iter().map(Range::len).sum() } else { 0 };
        let reducer = Arc::new(ToOwners {
            comm: comm.clone(),
            stage: config.stage,
            groups: groups.to_vec(),
            share: share.to_vec(),
            ranges,
            buckets: Buckets::new(of),
            overlap: config.overlap,
            last: AtomicBool::new(true),
            kept: Mutex::new(vec![T::zeroed(); kept]),
        });
        if config.stage == Stage::Two {
            params.set_gradients(Home::Sharded(reducer.clone()));
        }
        let hooked = reducer.clone();
        let listener = params.listen(Box::new(move |params, spec| {
            hooked.gradient_complete(params, spec).map_err(candle_core::Error::wrap)
        }));
        (reducer, listener)
    }

    pub fn begin(&self) {
        self.buckets.begin();
        self.kept().fill(T::zeroed());
    }

    pub fn synchronise(&self, last_micro_step: bool) {
        self.last.store(last_micro_step, Relaxed);
    }

    fn gradient_complete(&self, params: &Params, spec: &Spec) -> comm::Result<()> {
        if !self.keeps_share() && !self.last.load(Relaxed) {
            return Ok(());
        }
        let mut step = self.buckets.step();
        if let Some(bucket) = self.buckets.complete(&mut step, spec) {
            self.set_out(params, &mut step, bucket)?;
        }
        self.arrive(params, &mut step, !self.overlap)
    }

    // ANCHOR: reduce
    /// Sends each owner its part of the gradients of one bucket.
    fn set_out(&self, params: &Params, step: &mut Step<Range<usize>, T>, bucket: usize) -> comm::Result<()> {
        let range = self.ranges[bucket].clone();
        let mut gradients = match step.filling[bucket].take() {
            Some(gradients) => gradients,
            None => params.stored_gradients::<T>()[range.clone()].to_vec(),
        };
        let group = self.groups.iter().find(|group| group.whole().contains(&range.start));
        let owners: Vec<_> = group.into_iter().flat_map(|group| group.owners(range.clone())).collect();
        for (owner, held) in owners.into_iter().rev() {
            // From the end on: what is left is the bucket's beginning.
            let piece = match held.start - range.start {
                0 => std::mem::take(&mut gradients),
                start => gradients.split_off(start),
            };
            let pending = self.comm.start_reduce(piece, Reduce::Mean, owner)?;
            step.in_flight.push(held, pending);
        }
        let bytes = Self::bytes(step);
        step.peak_bytes = step.peak_bytes.max(bytes);
        Ok(())
    }

    /// A reduced range goes where this rank keeps it, if it is the owner; the memory that it came in is freed.
    fn arrive(&self, params: &Params, step: &mut Step<Range<usize>, T>, wait: bool) -> comm::Result<()> {
        Buckets::arrive(step, wait, |_, range, mean, _| {
            let is_here = |held: &Range<usize>| held.start <= range.start && range.end <= held.end;
            let Some(group) = self.share.iter().position(is_here) else { return };
            if self.keeps_share() {
                // The sum over micro-steps.
                let before: usize = self.share[..group].iter().map(Range::len).sum();
                let at = before + range.start - self.share[group].start;
                add(&mut self.kept()[at..at + range.len()], &mean);
            } else {
                params.stored_gradients::<T>()[range].copy_from_slice(&mean);
            }
        })
    }
    // ANCHOR_END: reduce

    /// Waits for everything in flight.
    pub fn finish(&self, params: &Params) -> Result<Vec<Averaged>> {
        let mut step = self.buckets.step();
        if self.keeps_share() {
            for bucket in self.buckets.left_behind(&mut step) {
                self.set_out(params, &mut step, bucket)?;
            }
        }
        self.arrive(params, &mut step, true)?;
        self.buckets.ensure_complete(&step)?;
        Ok(std::mem::take(&mut step.averaged))
    }

    /// Elements of all buckets that have set out in the last step, each as often as it has.
    pub fn reduced(&self) -> usize {
        self.buckets.step().set_out.iter().zip(&self.ranges).map(|(times, range)| times * range.len()).sum()
    }

    /// Whether this rank's share of the gradients is kept here, and not in the model's flat buffer.
    pub fn keeps_share(&self) -> bool {
        self.stage == Stage::Two
    }

    /// Bytes of the share that is kept here.
    pub fn kept_bytes(&self) -> usize {
        size_of::<T>() * self.kept().capacity()
    }

    /// Bytes of buckets now, and the most that they ever were when a bucket had just been completed.
    pub fn bucket_bytes(&self) -> (usize, usize) {
        let step = self.buckets.step();
        (Self::bytes(&step), step.peak_bytes)
    }

    fn bytes(step: &Step<Range<usize>, T>) -> usize {
        let filling: usize = step.filling.iter().flatten().map(Vec::len).sum();
        let in_flight: usize = step.in_flight.all().map(Range::len).sum();
        size_of::<T>() * (filling + in_flight)
    }

    pub fn kept(&self) -> MutexGuard<'_, Vec<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Stored> Collect for ToOwners<T> {
    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> candle_core::Result<()> {
        let (bucket, mut step) = (self.buckets.of(spec), self.buckets.step());
        let range = &self.ranges[bucket];
        let gradients = step.filling[bucket].get_or_insert_with(|| vec![T::zeroed(); range.len()]);
        T::change(&mut gradients[spec.range().start - range.start..][..spec.numel()], add);
        Ok(())
    }
}
