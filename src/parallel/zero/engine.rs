//! What each stage does in its own way, and the tensor ranks' copies, which all of them add up.

use super::{Event, MemoryUsage, Unit};
use crate::comm::{Comm, Reduce};
use crate::mesh::Axis;
use crate::optim::{Fragment, Gathered, Optimizer, State};
use crate::parallel::Averaged;
use crate::tensor::{Copies, Spec, Stored};
use anyhow::Result;
use std::ops::Range;

/// A function of each whole parameter.
pub(super) type Each<'a> = dyn FnMut(&Spec, &[f32]) + 'a;

/// A function of the state of each fragment.
pub(super) type Visit<'a> = dyn FnMut(&Fragment, Range<usize>, State) + 'a;

/// The mechanism of a stage. [`Zero`](super::Zero) documents each method.
pub(super) trait StageEngine {
    fn begin(&mut self) -> Result<()>;
    fn synchronise(&self, last_micro_step: bool);
    fn finish(&mut self) -> Result<Vec<Averaged>>;
    /// Sums the gradients of parameters that each rank of a tensor group holds, over the group.
    fn add_copies(&mut self, group: &Comm) -> Result<()>;
    /// Sums the gradients of tied parameters over the two pipeline stages that have a copy, and
    /// averages them. Averaging them waits for that.
    fn add_tied(&mut self, _ends: &Comm) -> Result<()> {
        Ok(())
    }
    /// The norm of `numel` gradients, which are sharded over the ranks of `comms`.
    fn norm(&self, comms: &[&Comm], numel: usize) -> Result<f64>;
    /// `gathered` puts a tensor rank's slice of a matrix together with the others'.
    fn update(&mut self, lr: f64, scale: f32, gathered: &Gathered) -> Result<()>;
    fn visit(&mut self, each: &mut Visit) -> Result<()>;
    /// Sends the values that each rank has changed in its shard to all ranks that hold them.
    fn all_gather_values(&mut self) -> Result<()> {
        Ok(())
    }
    fn optimizers(&mut self) -> &mut [Optimizer];
    /// Lets layers find their parameters outside of a step, until [`close`](StageEngine::close).
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn close(&mut self) {}
    /// Calls `each` with every parameter, whole and in f32.
    fn each(&mut self, each: &mut Each) -> Result<()>;
    fn memory(&self) -> MemoryUsage;
    /// Elements of experts, or of all else, that the last step gathered and reduced.
    fn volumes(&self, expert: bool) -> [usize; 2];
    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }
    fn units(&self) -> &[Unit] {
        &[]
    }
    fn buckets(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// The gradients of an optimizer's shard that count in the norm: all but the copies that a
/// different rank counts.
pub(super) fn counted<'a, T>(optimizer: &Optimizer, gradients: &'a [T]) -> Vec<&'a [T]> {
    let counts = |fragment: &&Fragment| fragment.spec.copies.counts();
    if optimizer.fragments().iter().all(|fragment| counts(&fragment)) {
        return vec![gradients];
    }
    let counted = optimizer.fragments().iter().filter(counts);
    counted.map(|fragment| &gradients[fragment.range()]).collect()
}

/// The offsets of those parameters in an optimizer's shard that each rank of a tensor group holds.
pub(super) fn copies(optimizer: &Optimizer) -> Vec<Range<usize>> {
    let is_copy = |fragment: &&Fragment| {
        matches!(fragment.spec.copies, Copies::Same { axis: Axis::Tensor, .. })
    };
    optimizer.fragments().iter().filter(is_copy).map(Fragment::range).collect()
}

/// Sums the gradients of [`copies`] over a tensor group.
pub(super) fn add_copies<T: Stored>(
    group: &Comm,
    optimizer: &Optimizer,
    gradients: &mut [T],
) -> Result<()> {
    let copies = copies(optimizer);
    let mut sums: Vec<T> =
        copies.iter().flat_map(|range| &gradients[range.clone()]).copied().collect();
    group.all_reduce(&mut sums, Reduce::Sum)?;
    let mut rest = &sums[..];
    for range in copies {
        let (sum, after) = rest.split_at(range.len());
        gradients[range].copy_from_slice(sum);
        rest = after;
    }
    Ok(())
}

/// Multiplies stored gradients.
pub(super) fn scale<T: Stored>(gradients: &mut [T], factor: f32) {
    T::change(gradients, |numbers| numbers.iter_mut().for_each(|g| *g *= factor));
}
