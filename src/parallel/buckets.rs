//! Buckets: gradients that travel together, and when they set out.
//!
//! One collective for each parameter would cost too many latencies, one for all of them could not start before the backward
//! pass has ended. So parameters are dealt out to buckets, and a bucket sets out as soon as the last of its parameters'
//! gradients is complete. What has become of each parameter and bucket is counted from a step's begin to its end, never per
//! backward pass: chunks of a pipeline complete their parameters in different passes.

use super::Averaged;
use super::queue::Queue;
use crate::comm;
use crate::tensor::{Params, Spec};
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The elements that a bucket grows to before the next one begins. The smaller, the earlier the first one starts and the more
/// the backward pass hides; the larger, the fewer latencies are paid. This suits models of a few megabytes.
pub const BUCKET: usize = 1 << 16;

/// A model's parameters, dealt out to buckets whose collectives carry `T`, each collective with a note `K` on what it is for.
pub(super) struct Buckets<K, T> {
    /// The bucket of each parameter, by its index, and the parameters of each bucket.
    of: Vec<usize>,
    members: Vec<Vec<usize>>,
    step: Mutex<Step<K, T>>,
}

/// The buckets' progress since the step began.
pub(super) struct Step<K, T> {
    /// Which parameters' gradients have been complete since their bucket last set out, and how many of each bucket's.
    complete: Vec<bool>,
    ready: Vec<usize>,
    /// How often each bucket has set out.
    pub set_out: Vec<usize>,
    /// Memory of buckets between their first gradient and their last, where gradients have no other.
    pub filling: Vec<Option<Vec<T>>>,
    pub in_flight: Queue<K, T>,
    /// Collectives whose result has arrived, in the order in which they were started.
    pub averaged: Vec<Averaged>,
    pub peak_bytes: usize,
}

impl<K, T> Step<K, T> {
    fn new(parameters: usize, buckets: usize) -> Step<K, T> {
        Step {
            complete: vec![false; parameters],
            ready: vec![0; buckets],
            set_out: vec![0; buckets],
            filling: (0..buckets).map(|_| None).collect(),
            in_flight: Queue::default(),
            averaged: Vec::new(),
            peak_bytes: 0,
        }
    }
}

impl<K, T: comm::Element> Buckets<K, T> {
    /// `of` is the bucket of each parameter, by its index.
    pub fn new(of: Vec<usize>) -> Buckets<K, T> {
        let buckets = of.iter().max().map_or(0, |last| last + 1);
        let members = |bucket| (0..of.len()).filter(|&index| of[index] == bucket).collect();
        let (members, step) = ((0..buckets).map(members).collect(), Mutex::new(Step::new(of.len(), buckets)));
        Buckets { of, members, step }
    }

    pub fn step(&self) -> MutexGuard<'_, Step<K, T>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step begins: what an earlier one left, having failed, is forgotten.
    pub fn begin(&self) {
        let mut step = self.step();
        step.complete.fill(false);
        step.ready.fill(0);
        step.set_out.fill(0);
        step.filling.fill_with(|| None);
        step.in_flight = Queue::default();
        step.averaged.clear();
    }

    pub fn of(&self, spec: &Spec) -> usize {
        self.of[spec.index]
    }

    /// Notes that a parameter's gradient is complete. Returns its bucket if that can set out now.
    pub fn complete(&self, step: &mut Step<K, T>, spec: &Spec) -> Option<usize> {
        let bucket = self.of(spec);
        step.ready[bucket] += usize::from(!std::mem::replace(&mut step.complete[spec.index], true));
        (step.ready[bucket] == self.members[bucket].len()).then(|| self.sets_out(step, bucket))
    }

    fn sets_out(&self, step: &mut Step<K, T>, bucket: usize) -> usize {
        self.members[bucket].iter().for_each(|&index| step.complete[index] = false);
        step.ready[bucket] = 0;
        step.set_out[bucket] += 1;
        bucket
    }

    /// Buckets in which some parameters have gradients that have not set out, because others' were complete less often.
    pub fn left_behind(&self, step: &mut Step<K, T>) -> Vec<usize> {
        let buckets: Vec<usize> = (0..self.members.len()).filter(|&bucket| step.ready[bucket] > 0).collect();
        buckets.into_iter().map(|bucket| self.sets_out(step, bucket)).collect()
    }

    /// Refuses a step in which a parameter got no gradient.
    pub fn ensure_complete(&self, step: &Step<K, T>) -> Result<()> {
        let (done, all) = (step.set_out.iter().filter(|&&times| times > 0).count(), self.members.len());
        ensure!(
            done == all,
            "{done} of {all} gradient buckets were averaged: a parameter got no gradient in this step"
        );
        Ok(())
    }

    /// Lets `arrived` have results: those that are there, or, if `wait`, all that are in flight.
    pub fn arrive(
        step: &mut Step<K, T>,
        wait: bool,
        mut arrived: impl FnMut(&mut Step<K, T>, K, Vec<T>, Averaged),
    ) -> comm::Result<()> {
        while let Some((what, result, seen)) = if wait { step.in_flight.next()? } else { step.in_flight.ready()? } {
            step.averaged.push(seen);
            arrived(step, what, result, seen);
        }
        Ok(())
    }
}

/// Deals the parameters out to ranges of the flat buffers, from the model's end to its start: the order in which gradients are
/// completed. A range has parameters of one group. Returns the ranges, and the number of each parameter's by its index.
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

    /// Two chunks of a pipeline share a bucket: one may have gone through two backward passes before the other has through one.
    #[test]
    fn buckets_are_counted_by_parameter_and_step() {
        let params = params();
        let (a, b) = (&params.specs()[0], &params.specs()[1]);
        let buckets = Buckets::<usize, f32>::new(vec![0, 0, 1, 1, 1, 1]);
        let mut step = buckets.step();
        assert_eq!(buckets.complete(&mut step, a), None);
        assert_eq!(buckets.complete(&mut step, a), None, "the same parameter twice is not two parameters");
        assert_eq!(buckets.complete(&mut step, b), Some(0));
        assert_eq!(buckets.complete(&mut step, b), None);
        assert!(buckets.ensure_complete(&step).is_err(), "bucket 1 has got nothing");
        assert_eq!(buckets.left_behind(&mut step), [0], "b's second gradient must not get lost");
        for spec in &params.specs()[2..] {
            buckets.complete(&mut step, spec);
        }
        assert_eq!(step.set_out, [2, 1]);
        assert!(buckets.ensure_complete(&step).is_ok());
        // What is left of a step that failed does not count in the next one.
        buckets.complete(&mut step, a);
        drop(step);
        buckets.begin();
        assert_eq!(buckets.complete(&mut buckets.step(), b), None);
    }
}
