//! Data parallelism (DDP): every rank holds the whole model and its own part of the batch; once a step, gradients are
//! averaged, and so the models stay one model.
//!
//! Cost: an all-reduce of all gradients a step, 2(n-1)/n times their bytes for each of n ranks, in buckets. A bucket is a
//! stretch of the flat gradient buffer. The backward pass runs from the model's end to its start, and as soon as it has
//! completed a bucket, that bucket's all-reduce starts; what the rank then waits for is only what the rest of the backward
//! pass did not hide.

use super::queue::Queue;
use crate::comm::{Comm, Reduce};
use crate::tensor::{Params, Spec};
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The elements that a bucket grows to before the next one begins. The smaller, the earlier the first one starts and the more
/// the backward pass hides; the larger, the fewer latencies are paid. This suits models of a few megabytes.
pub const BUCKET: usize = 1 << 16;

/// Keeps the replicas of a model on all ranks of a group the same.
pub struct Ddp {
    params: Arc<Params>,
    buckets: Arc<Buckets>,
}

/// One bucket's all-reduce, as this rank saw it.
#[derive(Clone, Copy, Debug)]
pub struct Averaged {
    /// From when this rank started it to when it was complete.
    pub start: Instant,
    pub end: Instant,
    /// When this rank did nothing but wait for it.
    pub waited: (Instant, Instant),
}

struct Buckets {
    comm: Comm,
    buckets: Vec<Bucket>,
    /// The bucket of each parameter, by its index.
    of: Vec<usize>,
    /// Whether this backward pass ends a step; before, gradients only add up.
    synchronise: AtomicBool,
    /// Whether the backward pass goes on while buckets are averaged.
    overlap: AtomicBool,
    step: Mutex<Step>,
}

pub(super) struct Bucket {
    pub range: Range<usize>,
    pub parameters: usize,
    pub complete: AtomicUsize,
}

/// What became of the buckets since the step began.
#[derive(Default)]
struct Step {
    /// Those whose result is in the gradients, in the order of the backward pass.
    averaged: Vec<Averaged>,
    /// Those that are not there yet, by their number, in the same order.
    under_way: Queue<usize, f32>,
    /// Vectors for the buckets to travel in, kept from step to step.
    spare: Vec<Vec<f32>>,
}

impl Ddp {
    /// Gives every rank rank 0's parameters, and sees to it that gradients are averaged from now on.
    pub fn new(params: &Arc<Params>, comm: &Comm) -> Result<Ddp> {
        comm.broadcast(&mut params.values_mut(), 0)?;
        Ok(Ddp::without_broadcast(params, comm))
    }

    /// For the one who wants to see what happens without: every rank keeps the parameters that it has.
    pub fn without_broadcast(params: &Arc<Params>, comm: &Comm) -> Ddp {
        Ddp::with_buckets(params, comm, BUCKET)
    }

    /// The same, with buckets of another size.
    pub fn with_buckets(params: &Arc<Params>, comm: &Comm, elements: usize) -> Ddp {
        let (buckets, of) = fill_buckets(params, elements);
        let buckets = Arc::new(Buckets {
            comm: comm.clone(),
            buckets,
            of,
            synchronise: AtomicBool::new(true),
            overlap: AtomicBool::new(true),
            step: Mutex::default(),
        });
        let hooked = buckets.clone();
        params.set_hook(Some(Box::new(move |params, spec| {
            hooked.gradient_complete(params, spec).map_err(candle_core::Error::wrap)
        })));
        Ddp { params: params.clone(), buckets }
    }

    /// Says whether the backward pass goes on while a bucket is averaged, as it does unless told otherwise. If not, it stops
    /// until the bucket is there. The result is the same.
    pub fn overlap(&self, overlap: bool) {
        self.buckets.overlap.store(overlap, Relaxed);
    }

    /// Bytes of the vectors that buckets travel in, which are kept from step to step.
    pub fn travelling_bytes(&self) -> usize {
        self.buckets.step().spare.iter().map(|vector| size_of::<f32>() * vector.capacity()).sum()
    }

    /// Says whether the next backward pass is a step's last one. Before that, nothing is communicated: averaging is
    /// linear, so the sum over micro-steps is averaged once.
    pub fn synchronise(&self, last_micro_step: bool) {
        self.buckets.synchronise.store(last_micro_step, Relaxed);
    }

    /// To be called after the last backward pass of a step: waits until every gradient is averaged. Returns when each
    /// bucket was, in the order of the backward pass.
    pub fn finish(&self) -> Result<Vec<Averaged>> {
        let mut step = self.buckets.step();
        while let Some((number, mean, seen)) = step.under_way.next()? {
            step.averaged.push(seen);
            self.params.gradients()[self.buckets.buckets[number].range.clone()].copy_from_slice(&mean);
            step.spare.push(mean);
        }
        let averaged = std::mem::take(&mut step.averaged);
        let (done, all) = (averaged.len(), self.buckets.buckets.len());
        ensure!(
            done == all,
            "{done} of {all} gradient buckets were averaged: a parameter got no gradient in this step"
        );
        Ok(averaged)
    }
}

impl Drop for Ddp {
    fn drop(&mut self) {
        self.params.set_hook(None);
    }
}

impl Buckets {
    // ANCHOR: bucket
    fn gradient_complete(&self, params: &Params, spec: &Spec) -> crate::comm::Result<()> {
        if !self.synchronise.load(Relaxed) {
            return Ok(());
        }
        let number = self.of[spec.index];
        let bucket = &self.buckets[number];
        let mut step = self.step();
        if bucket.complete.fetch_add(1, Relaxed) + 1 == bucket.parameters {
            bucket.complete.store(0, Relaxed);
            let gradients = &mut params.gradients()[bucket.range.clone()];
            if self.overlap.load(Relaxed) && self.comm.size() > 1 {
                let mut travelling = step.spare.pop().unwrap_or_default();
                travelling.clear();
                travelling.extend_from_slice(gradients);
                step.under_way.push(number, self.comm.start_all_reduce(travelling, Reduce::Mean)?);
            } else {
                let start = Instant::now();
                self.comm.all_reduce(gradients, Reduce::Mean)?;
                let end = Instant::now();
                step.averaged.push(Averaged { start, end, waited: (start, end) });
            }
        }
        // An all-reduce advances only when somebody looks after it.
        step.under_way.advance()
    }
    // ANCHOR_END: bucket

    fn step(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Deals the parameters out to buckets, from the model's end to its start: the order in which gradients are completed. A
/// bucket has parameters of one group.
pub(super) fn fill_buckets(params: &Params, elements: usize) -> (Vec<Bucket>, Vec<usize>) {
    let specs = params.specs();
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut of = vec![0; specs.len()];
    for group in params.groups() {
        let first = buckets.len();
        for spec in specs.iter().rev().filter(|spec| spec.decays() == group.decays) {
            match buckets[first..].last_mut() {
                Some(bucket) if bucket.range.len() < elements => {
                    bucket.range.start = spec.range().start;
                    bucket.parameters += 1;
                }
                _ => buckets.push(Bucket { range: spec.range(), parameters: 1, complete: AtomicUsize::new(0) }),
            }
            of[spec.index] = buckets.len() - 1;
        }
    }
    (buckets, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Init;

    #[test]
    fn buckets_cover_every_parameter_once() {
        let params = Params::new();
        let shapes: [&[usize]; 6] = [&[7], &[1, 1], &[100], &[3, 1], &[5, 10], &[2]];
        for (i, shape) in shapes.into_iter().enumerate() {
            params.declare(format!("p{i}"), shape, Init::Constant(0.0)).unwrap();
        }
        for elements in [1, 16, 100, 1 << 18] {
            let (buckets, of) = fill_buckets(&params, elements);
            assert_eq!(buckets.iter().map(|b| b.parameters).sum::<usize>(), 6);
            // End to end they are everything, and none has parameters of two groups.
            let mut ranges: Vec<_> = buckets.iter().map(|bucket| bucket.range.clone()).collect();
            ranges.sort_by_key(|range| range.start);
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, params.numel()));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(ranges.iter().all(|range| range.end <= 54 || range.start >= 54), "{ranges:?}");
            for spec in params.specs() {
                let range = &buckets[of[spec.index]].range;
                assert!(range.start <= spec.range().start && spec.range().end <= range.end);
            }
        }
    }
}
