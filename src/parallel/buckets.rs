//! Buckets: gradients that ranks average together, and the moment when that starts.
//!
//! One collective per parameter would pay too many latencies. One collective for all of them could
//! not start before the end of the backward pass. So parameters are grouped into buckets, and a
//! bucket's collective starts as soon as the last of its gradients is complete. The progress of
//! parameters and buckets is tracked for a whole step, never per backward pass: the chunks of a
//! pipeline complete their parameters in different passes.
//!
//! Data parallelism and the stages of ZeRO differ in where a bucket's average goes. Each of them is
//! a [`Reducer`].

use super::Averaged;
use super::queue::Queue;
use crate::comm::{self, Comm};
use crate::tensor::stored::add;
use crate::tensor::{Copies, Listener, Params, Spec, Stored};
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size at which a bucket is full, in elements. Small buckets start early, so that the backward
/// pass hides more of them. Large buckets pay fewer latencies. This size suits models of a few
/// megabytes.
pub const BUCKET: usize = 1 << 16;

/// One strategy's way to average the gradients of a bucket.
pub(super) trait Reducer<T: Stored>: Send + Sync {
    fn buckets(&self) -> &Buckets<T>;

    /// Starts to average a bucket whose gradients are complete.
    fn start(&self, params: &Params, step: &mut Averaging<T>, bucket: usize) -> comm::Result<()>;

    /// Stores averaged gradients, if this rank keeps them.
    fn store(&self, params: &Params, target: Target, mean: Vec<T>, seen: Averaged);

    /// Looks after the collectives in flight while the backward pass continues.
    fn advance(&self, params: &Params, step: &mut Averaging<T>) -> comm::Result<()> {
        self.arrive(params, step, !self.buckets().overlap.load(Relaxed))
    }

    /// Stores the results that have arrived. With `wait`, waits for all collectives in flight.
    fn arrive(&self, params: &Params, step: &mut Averaging<T>, wait: bool) -> comm::Result<()> {
        while let Some((target, mean, seen)) = if wait {
            step.in_flight.next()?
        } else {
            step.in_flight.ready()?
        } {
            step.averaged.push(seen);
            self.store(params, target, mean, seen);
        }
        Ok(())
    }

    /// The hook: a parameter's gradient is complete on this rank. A tied parameter waits for the
    /// other stage's part.
    fn gradient_complete(&self, params: &Params, spec: &Spec) -> comm::Result<()> {
        if matches!(spec.copies, Copies::Tied { .. }) {
            Ok(())
        } else {
            self.note_complete(params, spec)
        }
    }

    /// Notes that a parameter's gradient is complete, and starts its bucket if it was the last one.
    fn note_complete(&self, params: &Params, spec: &Spec) -> comm::Result<()> {
        let buckets = self.buckets();
        if !buckets.keeps_shard && !buckets.last.load(Relaxed) {
            return Ok(());
        }
        let mut step = buckets.step();
        if let Some(bucket) = buckets.complete(&mut step, spec) {
            self.start(params, &mut step, bucket)?;
        }
        self.advance(params, &mut step)
    }

    /// Ends a step: waits until every gradient is averaged. Returns the time of each collective, in
    /// their order.
    fn finish(&self, params: &Params) -> Result<Vec<Averaged>> {
        let buckets = self.buckets();
        let mut step = buckets.step();
        if buckets.keeps_shard {
            for bucket in step.start_incomplete() {
                self.start(params, &mut step, bucket)?;
            }
        }
        self.arrive(params, &mut step, true)?;
        step.finished = true;
        buckets.ensure_complete(&step)?;
        Ok(std::mem::take(&mut step.averaged))
    }

    /// Bytes of vectors that are kept for later buckets.
    fn spare_bytes(&self) -> usize {
        0
    }
}

/// Calls `reducer` from now on whenever a parameter's gradient is complete.
pub(super) fn listen<T: Stored>(
    params: &Arc<Params>,
    reducer: Arc<impl Reducer<T> + ?Sized + 'static>,
) -> Listener {
    params.listen(Box::new(move |params, spec| {
        reducer.gradient_complete(params, spec).map_err(candle_core::Error::wrap)
    }))
}

/// The gradients that a collective in flight brings.
pub(super) struct Target {
    pub bucket: usize,
    /// Offsets in the model's flat buffers, or in this rank's shard.
    pub range: Range<usize>,
}

/// A model's parameters, grouped into buckets whose gradients are stored as `T`.
pub(super) struct Buckets<T> {
    pub comm: Comm,
    /// The bucket of each parameter, by the parameter's index.
    of: Vec<usize>,
    /// Whether this rank keeps only its shard of the gradients, here, and not in the model's flat
    /// buffer. Whole gradients then have no place to add up in, so every micro-step is averaged,
    /// and not only a step's last backward pass.
    pub keeps_shard: bool,
    /// Whether the next backward pass is the step's last.
    last: AtomicBool,
    /// Whether the backward pass continues while buckets are averaged.
    pub overlap: AtomicBool,
    /// This rank's shard of the averaged gradients, summed over micro-steps. Empty if the model's
    /// flat buffer has it.
    shard: Mutex<Vec<T>>,
    step: Mutex<Averaging<T>>,
}

/// A bucket, and its progress since the step began.
struct Bucket<T> {
    /// Elements of all its gradients.
    numel: usize,
    /// The number of its parameters.
    members: usize,
    /// Its parameters with complete gradients, since it was last started, by their index.
    complete: Vec<usize>,
    /// How many times it was started.
    started: usize,
    /// Its gradients, if no flat buffer holds them.
    filling: Option<Vec<T>>,
}

/// How far a step has averaged its gradients.
pub(super) struct Averaging<T> {
    buckets: Vec<Bucket<T>>,
    pub in_flight: Queue<Target, T>,
    /// The collectives whose results have arrived, in the order in which they were started.
    pub averaged: Vec<Averaged>,
    /// Whether the step has ended, so that the next gradient belongs to a new step.
    finished: bool,
    pub peak_bytes: usize,
}

impl<T> Bucket<T> {
    /// Begins the bucket's next round of gradients.
    fn start(&mut self) {
        self.complete.clear();
        self.started += 1;
    }
}

impl<T: Stored> Averaging<T> {
    fn begin(&mut self) {
        for bucket in &mut self.buckets {
            bucket.complete.clear();
            bucket.started = 0;
            bucket.filling = None;
        }
        self.in_flight = Queue::default();
        self.averaged.clear();
        self.finished = false;
    }

    /// Removes a bucket's gradients, if no flat buffer holds them.
    pub fn take(&mut self, bucket: usize) -> Option<Vec<T>> {
        self.buckets[bucket].filling.take()
    }

    /// Begins a new round of the incomplete buckets: some of their gradients were complete less
    /// often than others. Returns their numbers.
    fn start_incomplete(&mut self) -> Vec<usize> {
        let left = self
            .buckets
            .iter_mut()
            .enumerate()
            .filter(|(_, bucket)| !bucket.complete.is_empty());
        let start = |(number, bucket): (usize, &mut Bucket<T>)| {
            bucket.start();
            number
        };
        left.map(start).collect()
    }

    /// Whether all buckets have been started equally often.
    pub fn is_even(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.started == self.buckets[0].started)
    }

    /// Bytes of all buckets that are filling or in flight.
    pub fn bytes(&self) -> usize {
        let filling: usize = self
            .buckets
            .iter()
            .filter_map(|bucket| bucket.filling.as_ref())
            .map(Vec::len)
            .sum();
        size_of::<T>() * (filling + self.in_flight.elements())
    }
}

impl<T: Stored> Buckets<T> {
    /// Buckets of `sizes` elements, averaged over `comm`. `of` is the bucket of each parameter, by
    /// its index. With `shard`, this rank's shard of the gradients is kept here, in so many
    /// elements, and every micro-step adds to it.
    pub fn new(
        comm: &Comm,
        sizes: Vec<usize>,
        of: Vec<usize>,
        shard: Option<usize>,
        overlap: bool,
    ) -> Buckets<T> {
        let bucket = |(number, numel)| {
            let members = of.iter().filter(|&&bucket| bucket == number).count();
            Bucket {
                numel,
                members,
                complete: Vec::new(),
                started: 0,
                filling: None,
            }
        };
        let buckets = sizes.into_iter().enumerate().map(bucket).collect();
        let in_flight = Queue::default();
        let averaged = Vec::new();
        let step = Averaging { buckets, in_flight, averaged, finished: false, peak_bytes: 0 };
        Buckets {
            comm: comm.clone(),
            of,
            keeps_shard: shard.is_some(),
            last: AtomicBool::new(true),
            overlap: AtomicBool::new(overlap),
            shard: Mutex::new(vec![T::zeroed(); shard.unwrap_or(0)]),
            step: Mutex::new(step),
        }
    }

    pub fn step(&self) -> MutexGuard<'_, Averaging<T>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn shard(&self) -> MutexGuard<'_, Vec<T>> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a step, and forgets what remains of an earlier step that failed.
    pub fn begin(&self) {
        self.step().begin();
        self.shard().fill(T::zeroed());
    }

    /// Tells whether the next backward pass is the step's last.
    pub fn synchronise(&self, last_micro_step: bool) {
        self.last.store(last_micro_step, Relaxed);
    }

    pub fn of(&self, spec: &Spec) -> usize {
        self.of[spec.index]
    }

    /// Calls `change` with the gradient of a parameter whose bucket has no flat buffer. `offset` is
    /// the parameter's, in its bucket.
    pub fn add_gradient(&self, spec: &Spec, offset: usize, change: &mut dyn FnMut(&mut [f32])) {
        let Bucket { filling, numel, .. } = &mut self.step().buckets[self.of(spec)];
        let gradients = filling.get_or_insert_with(|| vec![T::zeroed(); *numel]);
        T::change(&mut gradients[offset..][..spec.numel()], change);
    }

    /// Adds averaged gradients to this rank's shard, at `offset`.
    pub fn keep(&self, offset: usize, mean: &[T]) {
        add(&mut self.shard()[offset..offset + mean.len()], mean);
    }

    /// Elements of each bucket, in the order in which a backward pass completes them.
    pub fn sizes(&self) -> Vec<usize> {
        self.step().buckets.iter().map(|bucket| bucket.numel).collect()
    }

    /// Elements of all buckets that the last step started, each counted as often as it was started.
    pub fn reduced(&self) -> usize {
        self.step().buckets.iter().map(|bucket| bucket.started * bucket.numel).sum()
    }

    /// Notes that a parameter's gradient is complete. Returns its bucket if it can start now.
    fn complete(&self, step: &mut Averaging<T>, spec: &Spec) -> Option<usize> {
        if step.finished {
            step.begin();
        }
        let number = self.of(spec);
        let bucket = &mut step.buckets[number];
        if !bucket.complete.contains(&spec.index) {
            bucket.complete.push(spec.index);
        }
        if bucket.complete.len() < bucket.members {
            return None;
        }
        bucket.start();
        Some(number)
    }

    /// Refuses a step in which a parameter got no gradient, or in which gradients were averaged
    /// twice.
    fn ensure_complete(&self, step: &Averaging<T>) -> Result<()> {
        let more_than = |times| step.buckets.iter().filter(|bucket| bucket.started > times).count();
        let done = more_than(0);
        let twice = more_than(1);
        let all = step.buckets.len();
        ensure!(
            done == all,
            "{done} of {all} gradient buckets were averaged: a parameter got no gradient in this step"
        );
        ensure!(
            twice == 0 || self.keeps_shard,
            "{twice} gradient buckets were averaged more than once in this step: more than one backward pass was its last"
        );
        Ok(())
    }
}

/// Divides the flat buffers into ranges of at least `elements`, from the model's end to its start:
/// the order in which gradients become complete. A range has parameters of one group only. Returns
/// the ranges, and each parameter's range by the parameter's index.
pub(super) fn flat_ranges(params: &Params, elements: usize) -> (Vec<Range<usize>>, Vec<usize>) {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut of = vec![0; params.specs().len()];
    for group in &params.layout().groups {
        let first = ranges.len();
        for spec in params.specs().iter().rev().filter(|spec| spec.decays() == group.decays) {
            match ranges[first..].last_mut() {
                Some(range) if range.len() < elements => range.start = spec.range().start,
                _ => ranges.push(spec.range()),
            }
            of[spec.index] = ranges.len() - 1;
        }
    }
    (ranges, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Init;
    use std::sync::Arc;

    fn params() -> Arc<Params> {
        let params = Params::new();
        let shapes: [&[usize]; 6] = [&[7], &[1, 1], &[100], &[3, 1], &[5, 10], &[2]];
        for (i, shape) in shapes.into_iter().enumerate() {
            params.declare(format!("p{i}"), shape, Init::Constant(0.0)).unwrap();
        }
        params
    }

    #[test]
    fn ranges_cover_every_parameter_once() {
        let params = params();
        for elements in [1, 16, 100, 1 << 18] {
            let (mut ranges, of) = flat_ranges(&params, elements);
            for spec in params.specs() {
                let range = &ranges[of[spec.index]];
                assert!(range.start <= spec.range().start && spec.range().end <= range.end);
            }
            // End to end they are everything, and none has parameters of two groups.
            ranges.sort_by_key(|range| range.start);
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, params.numel()));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(ranges.iter().all(|range| range.end <= 54 || range.start >= 54), "{ranges:?}");
        }
    }

    /// Two chunks of a pipeline share a bucket: one may have gone through two backward passes
    /// before the other has through one.
    #[test]
    fn buckets_are_counted_by_parameter_and_step() {
        let params = params();
        let a = &params.specs()[0];
        let b = &params.specs()[1];
        let buckets =
            Buckets::<f32>::new(&Comm::alone(), vec![0, 0], vec![0, 0, 1, 1, 1, 1], Some(0), true);
        let mut step = buckets.step();
        assert_eq!(buckets.complete(&mut step, a), None);
        assert_eq!(
            buckets.complete(&mut step, a),
            None,
            "the same parameter twice is not two parameters"
        );
        assert_eq!(buckets.complete(&mut step, b), Some(0));
        assert_eq!(buckets.complete(&mut step, b), None);
        assert!(buckets.ensure_complete(&step).is_err(), "bucket 1 has got nothing");
        assert_eq!(step.start_incomplete(), [0], "b's second gradient must not get lost");
        for spec in &params.specs()[2..] {
            buckets.complete(&mut step, spec);
        }
        assert_eq!(step.buckets.iter().map(|bucket| bucket.started).collect::<Vec<_>>(), [2, 1]);
        assert!(buckets.ensure_complete(&step).is_ok());
        // What is left of a step that failed does not count in the next one.
        buckets.complete(&mut step, a);
        drop(step);
        buckets.begin();
        assert_eq!(buckets.complete(&mut buckets.step(), b), None);
    }
}
