//! Buckets: gradients that ranks average together, and the moment when that starts.
//!
//! One collective per parameter would pay too many latencies. One collective for all of them could
//! not start before the end of the backward pass. So parameters are grouped into buckets, and a
//! bucket's collective starts as soon as the last of its gradients is complete. The progress of
//! parameters and buckets is tracked for a whole step, never per backward pass: the chunks of a
//! pipeline complete their parameters in different passes.
//!
//! A [`Reducer`] follows the step. Data parallelism and the stages of ZeRO differ only in the
//! collective that a bucket takes and in where its average goes: each of them is a [`Reduction`].

use super::Averaged;
use super::queue::Queue;
use crate::comm;
use crate::tensor::stored::add;
use crate::tensor::{Copies, Listener, Params, ShardedGradients, Spec, Stored};
use anyhow::{Result, bail, ensure};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size at which a bucket is full, in elements. Small buckets start early, so that the backward
/// pass hides more of them. Large buckets pay fewer latencies. This size suits models of a few
/// megabytes.
pub const BUCKET: usize = 1 << 16;

/// Averages a model's gradients, stored as `T`, bucket by bucket during the backward pass, as
/// PyTorch's `Reducer` does. Its methods are in the order of a step.
pub(super) struct Reducer<T> {
    /// By the parameters' index.
    slots: Vec<Slot>,
    reduction: Box<dyn Reduction<T>>,
    step: Mutex<Averaging<T>>,
}

/// One strategy's way to average a bucket.
pub(super) trait Reduction<T>: Send + Sync {
    /// Begins to average a bucket whose gradients are complete on this rank.
    fn start(&self, params: &Params, step: &mut Averaging<T>, bucket: usize) -> comm::Result<()>;

    /// Puts averaged gradients where they belong, if this rank keeps them.
    fn store(
        &self,
        params: &Params,
        step: &mut Averaging<T>,
        target: Target,
        mean: Vec<T>,
        seen: Averaged,
    );

    /// Whether averages are stored as soon as they arrive, which frees their memory. Otherwise they
    /// wait for the end of the step.
    fn stores_early(&self) -> bool {
        true
    }
}

/// A parameter's bucket, and its offset there.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub bucket: usize,
    pub offset: usize,
}

/// The gradients that a collective in flight brings.
pub(super) struct Target {
    pub bucket: usize,
    /// Offsets in the model's flat buffers, or in this rank's shard.
    pub range: Range<usize>,
}

impl<T: Stored> Reducer<T> {
    /// Buckets of `sizes` elements. `slots` are the parameters', by their index. With `shard`, this
    /// rank's shard of the gradients is kept here, in so many elements, and every micro-step adds
    /// to it.
    pub fn new(
        sizes: Vec<usize>,
        slots: Vec<Slot>,
        shard: Option<usize>,
        overlap: bool,
        reduction: impl Reduction<T> + 'static,
    ) -> Arc<Reducer<T>> {
        let step = Mutex::new(Averaging::new(sizes, &slots, shard, overlap));
        Arc::new(Reducer { slots, reduction: Box::new(reduction), step })
    }

    /// Averages the gradients of `params` from now on.
    pub fn listen(self: &Arc<Reducer<T>>, params: &Arc<Params>) -> Listener {
        let reducer = self.clone();
        params.listen(Box::new(move |params, spec| {
            if matches!(spec.copies, Copies::Tied { .. }) {
                return Ok(()); // it waits for the other stage's part
            }
            reducer.complete(params, spec).map_err(candle_core::Error::wrap)
        }))
    }

    /// Begins a step, and forgets what remains of an earlier step that failed.
    pub fn begin(&self) {
        let mut step = self.step();
        step.begin();
        step.shard().fill(T::zeroed());
    }

    /// Tells whether the next backward pass is the step's last.
    pub fn synchronise(&self, last_micro_step: bool) {
        self.step().last = last_micro_step;
    }

    /// Notes that a parameter's gradient is complete on this rank, starts its bucket if it was the
    /// last one there, and looks after the collectives in flight.
    pub fn complete(&self, params: &Params, spec: &Spec) -> comm::Result<()> {
        let mut step = self.step();
        if !step.keeps_shard() && !step.last {
            return Ok(());
        }
        let bucket = self.slots[spec.index].bucket;
        if step.complete(bucket, spec.index) {
            self.reduction.start(params, &mut step, bucket)?;
        }
        if self.reduction.stores_early() {
            let wait = !step.overlap;
            self.arrive(params, &mut step, wait)
        } else {
            // A collective makes progress only when it is tested.
            step.in_flight.advance()
        }
    }

    /// Stores the averages that have arrived. With `wait`, waits for all collectives in flight.
    fn arrive(&self, params: &Params, step: &mut Averaging<T>, wait: bool) -> comm::Result<()> {
        while let Some((target, mean, seen)) = if wait {
            step.in_flight.next()?
        } else {
            step.in_flight.ready()?
        } {
            step.averaged.push(seen);
            self.reduction.store(params, step, target, mean, seen);
        }
        Ok(())
    }

    /// Ends a step: waits until every gradient is averaged. Returns the time of each collective, in
    /// their order.
    pub fn finish(&self, params: &Params) -> Result<Vec<Averaged>> {
        let mut step = self.step();
        if step.keeps_shard() {
            for bucket in step.start_incomplete() {
                self.reduction.start(params, &mut step, bucket)?;
            }
        }
        self.arrive(params, &mut step, true)?;
        step.finished = true;
        step.ensure_complete(params)?;
        Ok(std::mem::take(&mut step.averaged))
    }

    /// Elements of all buckets of experts, or of all else, that the last step started, each counted
    /// as often as it was started.
    pub fn reduced(&self, params: &Params, expert: bool) -> usize {
        let slot = |spec: &Arc<Spec>| self.slots[spec.index].bucket;
        let has = |number| params.specs().iter().find(|spec| slot(spec) == number);
        let step = self.step();
        let buckets = step.buckets.iter().enumerate();
        let counted = buckets.filter(|(number, _)| {
            has(*number).is_some_and(|spec| spec.whole.part.is_expert() == expert)
        });
        counted.map(|(_, bucket)| bucket.started * bucket.numel).sum()
    }

    pub fn step(&self) -> MutexGuard<'_, Averaging<T>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gradients that have no flat buffer add up in their bucket, until it starts.
impl<T: Stored> ShardedGradients for Reducer<T> {
    fn add_gradient(
        &self,
        spec: &Spec,
        add: &mut dyn FnMut(&mut [f32]),
    ) -> candle_core::Result<()> {
        let Slot { bucket, offset } = self.slots[spec.index];
        let mut step = self.step();
        if step.finished {
            candle_core::bail!(
                "a backward pass came after its step had ended; begin the next step first"
            );
        }
        let Bucket { filling, numel, .. } = &mut step.buckets[bucket];
        let gradients = filling.get_or_insert_with(|| vec![T::zeroed(); *numel]);
        T::change(&mut gradients[offset..][..spec.numel()], add);
        Ok(())
    }
}

/// How far a step has averaged its gradients.
pub(super) struct Averaging<T> {
    buckets: Vec<Bucket<T>>,
    /// Whether each parameter got a gradient since the step began, by its index.
    reached: Vec<bool>,
    /// Whether the next backward pass is the step's last.
    last: bool,
    /// Whether the backward pass continues while buckets are averaged.
    pub overlap: bool,
    pub in_flight: Queue<Target, T>,
    /// The collectives whose results have arrived, in the order in which they were started.
    pub averaged: Vec<Averaged>,
    /// Whether the step has ended, so that the next gradient belongs to a new step.
    finished: bool,
    /// This rank's shard of the averaged gradients, summed over micro-steps. `None` if the model's
    /// flat buffer has them.
    shard: Option<Vec<T>>,
    /// Vectors for buckets in flight, if a strategy keeps them from step to step.
    pub spare: Vec<Vec<T>>,
    /// The largest [`bytes`](Averaging::bytes) when a bucket was started, where a strategy counts
    /// them.
    pub peak_bytes: usize,
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

impl<T> Bucket<T> {
    /// Begins the bucket's next round of gradients.
    fn start(&mut self) {
        self.complete.clear();
        self.started += 1;
    }
}

impl<T: Stored> Averaging<T> {
    fn new(sizes: Vec<usize>, slots: &[Slot], shard: Option<usize>, overlap: bool) -> Averaging<T> {
        let bucket = |(number, numel)| {
            let members = slots.iter().filter(|slot| slot.bucket == number).count();
            Bucket {
                numel,
                members,
                complete: Vec::new(),
                started: 0,
                filling: None,
            }
        };
        Averaging {
            buckets: sizes.into_iter().enumerate().map(bucket).collect(),
            reached: vec![false; slots.len()],
            last: true,
            overlap,
            in_flight: Queue::default(),
            averaged: Vec::new(),
            finished: false,
            shard: shard.map(|elements| vec![T::zeroed(); elements]),
            spare: Vec::new(),
            peak_bytes: 0,
        }
    }

    fn begin(&mut self) {
        for bucket in &mut self.buckets {
            bucket.complete.clear();
            bucket.started = 0;
            bucket.filling = None;
        }
        self.reached.fill(false);
        self.in_flight = Queue::default();
        self.averaged.clear();
        self.finished = false;
    }

    /// Notes that a parameter's gradient is complete. Returns whether its bucket starts now.
    fn complete(&mut self, bucket: usize, parameter: usize) -> bool {
        if self.finished {
            self.begin();
        }
        self.reached[parameter] = true;
        let bucket = &mut self.buckets[bucket];
        if !bucket.complete.contains(&parameter) {
            bucket.complete.push(parameter);
        }
        if bucket.complete.len() < bucket.members {
            return false;
        }
        bucket.start();
        true
    }

    /// Begins a new round of the incomplete buckets: some of their gradients were complete less
    /// often than others. Returns their numbers.
    fn start_incomplete(&mut self) -> Vec<usize> {
        let mut left = Vec::new();
        for (number, bucket) in self.buckets.iter_mut().enumerate() {
            if !bucket.complete.is_empty() {
                bucket.start();
                left.push(number);
            }
        }
        left
    }

    /// Removes a bucket's gradients, if no flat buffer holds them.
    pub fn take(&mut self, bucket: usize) -> Option<Vec<T>> {
        self.buckets[bucket].filling.take()
    }

    /// Adds averaged gradients to this rank's shard, at `offset`.
    pub fn keep(&mut self, offset: usize, mean: &[T]) {
        add(&mut self.shard()[offset..offset + mean.len()], mean);
    }

    /// Whether this rank keeps only its shard of the gradients, here, and not in the model's flat
    /// buffer. Whole gradients then have no place to add up in, so every micro-step is averaged,
    /// and not only a step's last backward pass.
    pub fn keeps_shard(&self) -> bool {
        self.shard.is_some()
    }

    /// This rank's shard of the averaged gradients, empty if the model's flat buffer has it.
    pub fn shard(&mut self) -> &mut [T] {
        self.shard.as_deref_mut().unwrap_or_default()
    }

    /// Whether all buckets have been started equally often.
    pub fn is_even(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.started == self.buckets[0].started)
    }

    /// Refuses a step in which a parameter got no gradient, or in which gradients were averaged
    /// twice.
    fn ensure_complete(&self, params: &Params) -> Result<()> {
        if let Some(missing) = params.specs().iter().find(|spec| !self.reached[spec.index]) {
            bail!("{} got no gradient in this step", missing.name);
        }
        let twice = self.buckets.iter().filter(|bucket| bucket.started > 1).count();
        ensure!(
            twice == 0 || self.keeps_shard(),
            "{twice} gradient buckets were averaged more than once in this step: more than one backward pass was its last"
        );
        Ok(())
    }

    /// Elements of each bucket, in the order in which a backward pass completes them.
    pub fn sizes(&self) -> Vec<usize> {
        self.buckets.iter().map(|bucket| bucket.numel).collect()
    }

    /// Bytes of all buckets that are filling or in flight, and of vectors that are kept for later
    /// ones.
    pub fn bytes(&self) -> usize {
        let filling = self.buckets.iter().flat_map(|bucket| &bucket.filling);
        let filling: usize = filling.map(Vec::len).sum();
        let spare: usize = self.spare.iter().map(Vec::capacity).sum();
        size_of::<T>() * (filling + self.in_flight.elements() + spare)
    }

    /// Bytes of this rank's shard, if it is kept here.
    pub fn shard_bytes(&self) -> usize {
        size_of::<T>() * self.shard.as_ref().map_or(0, Vec::capacity)
    }
}

/// Divides the flat buffers into ranges of at least `elements`, from the model's end to its start:
/// the order in which gradients become complete. A range has parameters of one group only. Returns
/// the ranges, and each parameter's slot in them by the parameter's index.
pub(super) fn flat_ranges(params: &Params, elements: usize) -> (Vec<Range<usize>>, Vec<Slot>) {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut of = vec![0; params.specs().len()];
    for group in &params.layout().groups {
        let first = ranges.len();
        for spec in params.specs().iter().rev().filter(|spec| group.has(spec)) {
            match ranges[first..].last_mut() {
                Some(range) if range.len() < elements => range.start = spec.range().start,
                _ => ranges.push(spec.range()),
            }
            of[spec.index] = ranges.len() - 1;
        }
    }
    let slot = |spec: &Arc<Spec>| {
        let bucket = of[spec.index];
        Slot { bucket, offset: spec.range().start - ranges[bucket].start }
    };
    let slots = params.specs().iter().map(slot).collect();
    (ranges, slots)
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
            let (mut ranges, slots) = flat_ranges(&params, elements);
            for spec in params.specs() {
                let Slot { bucket, offset } = slots[spec.index];
                assert_eq!(ranges[bucket].start + offset, spec.range().start);
                assert!(spec.range().end <= ranges[bucket].end);
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
        let of = [0, 0, 1, 1, 1, 1];
        let slots = of.map(|bucket| Slot { bucket, offset: 0 });
        let mut step = Averaging::<f32>::new(vec![0, 0], &slots, Some(0), true);
        assert!(!step.complete(0, 0));
        assert!(!step.complete(0, 0), "the same parameter twice is not two parameters");
        assert!(step.complete(0, 1));
        assert!(!step.complete(0, 1));
        let params = params();
        assert!(step.ensure_complete(&params).is_err(), "bucket 1 has got nothing");
        assert_eq!(step.start_incomplete(), [0], "1's second gradient must not get lost");
        for parameter in 2..6 {
            step.complete(1, parameter);
        }
        assert_eq!(step.buckets.iter().map(|bucket| bucket.started).collect::<Vec<_>>(), [2, 1]);
        assert!(step.ensure_complete(&params).is_ok());
        // What is left of a step that failed does not count in the next one.
        step.complete(0, 0);
        step.begin();
        assert!(!step.complete(0, 1));
    }
}
