//! Data parallelism (DDP): every rank holds the whole model and its own part of the batch; once a step, gradients are
//! averaged, and so the models stay one model.
//!
//! Cost: an all-reduce of all gradients per step, 2(n-1)/n times their bytes for each of n ranks, in buckets. A bucket is a
//! range of the flat gradient buffer. The backward pass runs from the model's end to its start, and as soon as it has
//! completed a bucket, that bucket's all-reduce starts; what the rank then waits for is only what the rest of the backward
//! pass did not hide.

use super::Averaged;
use super::buckets::{BUCKET, Buckets, flat_ranges};
use crate::comm::{self, Comm, Reduce};
use crate::tensor::{Listener, Params, Spec, Stored};
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Keeps the replicas of a model, whose gradients are stored as `T`, the same on all ranks of a group.
pub struct Ddp<T: Stored = f32> {
    params: Arc<Params>,
    reducer: Arc<Reducer<T>>,
    _listener: Listener,
}

/// The part that the backward pass reaches through the hook.
struct Reducer<T> {
    comm: Comm,
    ranges: Vec<Range<usize>>,
    buckets: Buckets<usize, T>,
    /// Whether this backward pass ends a step; before, gradients only add up.
    synchronise: AtomicBool,
    /// Whether the backward pass goes on while buckets are averaged.
    overlap: AtomicBool,
    /// Vectors for buckets in flight, kept from step to step.
    spare: Mutex<Vec<Vec<T>>>,
}

impl Ddp {
    /// Gives every rank rank 0's parameters, and averages gradients from now on.
    pub fn new(params: &Arc<Params>, comm: &Comm) -> Result<Ddp> {
        comm.broadcast(&mut params.values_mut(), 0)?;
        Ok(Ddp::with_buckets(params, comm, BUCKET))
    }
}

impl<T: Stored> Ddp<T> {
    /// Averages the gradients of parameters that all ranks hold alike, in buckets of at least so many elements.
    pub fn with_buckets(params: &Arc<Params>, comm: &Comm, elements: usize) -> Ddp<T> {
        let (ranges, of) = flat_ranges(params, elements);
        let reducer = Arc::new(Reducer {
            comm: comm.clone(),
            ranges,
            buckets: Buckets::new(of),
            synchronise: AtomicBool::new(true),
            overlap: AtomicBool::new(true),
            spare: Mutex::default(),
        });
        let hooked = reducer.clone();
        let listener = params.listen(Box::new(move |params, spec| {
            hooked.gradient_complete(params, spec).map_err(candle_core::Error::wrap)
        }));
        Ddp { params: params.clone(), reducer, _listener: listener }
    }

    /// Sets whether the backward pass goes on while a bucket is averaged, as it does by default. If not, it stops until the
    /// bucket has arrived. The result is the same.
    pub fn overlap(&self, overlap: bool) {
        self.reducer.overlap.store(overlap, Relaxed);
    }

    /// The elements of each bucket, in the order in which a backward pass completes them.
    pub fn buckets(&self) -> Vec<usize> {
        self.reducer.ranges.iter().map(Range::len).collect()
    }

    /// Bytes of the vectors for buckets in flight, which are kept from step to step.
    pub fn bucket_bytes(&self) -> usize {
        self.reducer.spare().iter().map(|vector| size_of::<T>() * vector.capacity()).sum()
    }

    /// Says whether the next backward pass is the last one of this step for the parameters that it reaches. Before that,
    /// nothing is communicated: averaging is linear, so the sum over micro-steps is averaged once.
    pub fn synchronise(&self, last_micro_step: bool) {
        self.reducer.synchronise.store(last_micro_step, Relaxed);
    }

    /// To be called after the last backward pass of a step: waits until every gradient is averaged. Returns when each
    /// bucket was, in the order of the backward pass.
    pub fn finish(&self) -> Result<Vec<Averaged>> {
        let Reducer { ranges, buckets, .. } = &*self.reducer;
        let mut step = buckets.step();
        Buckets::arrive(&mut step, true, |_, bucket, mean, _| {
            self.params.stored_gradients::<T>()[ranges[bucket].clone()].copy_from_slice(&mean);
            self.reducer.spare().push(mean);
        })?;
        let complete = buckets.ensure_complete(&step);
        let twice = step.set_out.iter().filter(|&&times| times > 1).count();
        let averaged = std::mem::take(&mut step.averaged);
        drop(step);
        buckets.begin();
        complete?;
        ensure!(
            twice == 0,
            "{twice} gradient buckets were averaged more than once in this step: several of its backward passes were its last"
        );
        Ok(averaged)
    }

    /// Forgets a step that failed.
    pub(super) fn begin(&self) {
        self.reducer.buckets.begin();
    }
}

impl<T: Stored> Reducer<T> {
    // ANCHOR: bucket
    fn gradient_complete(&self, params: &Params, spec: &Spec) -> comm::Result<()> {
        if !self.synchronise.load(Relaxed) {
            return Ok(());
        }
        let mut step = self.buckets.step();
        if let Some(bucket) = self.buckets.complete(&mut step, spec) {
            let gradients = &mut params.stored_gradients::<T>()[self.ranges[bucket].clone()];
            if self.overlap.load(Relaxed) && self.comm.size() > 1 {
                let mut travelling = self.spare().pop().unwrap_or_default();
                travelling.clear();
                travelling.extend_from_slice(gradients);
                step.in_flight.push(bucket, self.comm.start_all_reduce(travelling, Reduce::Mean)?);
            } else {
                let start = Instant::now();
                self.comm.all_reduce(gradients, Reduce::Mean)?;
                let end = Instant::now();
                step.averaged.push(Averaged { start, end, waited: (start, end) });
            }
        }
        // An all-reduce advances only when somebody looks after it.
        step.in_flight.advance()
    }
    // ANCHOR_END: bucket

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<T>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
