//! Reduces the gradients of stages 1 and 2 to their owners.
//!
//! A bucket is a range of the model, as under DDP: the first bucket ends at the model's end. When
//! the backward pass has completed a bucket, each rank's slice of it is reduced to that rank only:
//! half of an all-reduce. In stage 1 the model's flat buffer holds all gradients. In stage 2 a
//! bucket has memory only from its first gradient until it has been reduced. Afterwards each rank
//! keeps its own shard.
//!
//! Owners are the same as DeepSpeed's: each rank owns one range of each parameter group. So most
//! buckets have one owner, and only that owner's link to the other ranks is busy. Between two
//! ranks, reducing all buckets therefore takes as long as all-reducing them. Megatron-LM and FSDP
//! cut every bucket among all ranks.

use super::division::Division;
use super::{Averaged, Stage, ZeroConfig};
use crate::comm::{self, Reduce};
use crate::parallel::Replicas;
use crate::parallel::buckets::{Averaging, Reducer, Reduction, Target, flat_ranges};
use crate::tensor::{Params, Storage, Stored};
use std::ops::Range;
use std::sync::Arc;

/// Averages this rank's shard of the gradients over all ranks. `shard` is what this rank updates of
/// the model's `divisions`, as ranges of the flat buffers. In stage 2 the reducer keeps the shard's
/// gradients, in stage 1 the model's flat buffer does.
pub(super) fn owner_reducer<T: Stored>(
    params: &Params,
    replicas: &Replicas,
    divisions: &[Division],
    shard: &[Range<usize>],
    config: &ZeroConfig,
) -> Arc<Reducer<T>> {
    let (ranges, slots) = flat_ranges(params, config.reduce_bucket);
    let sizes = ranges.iter().map(Range::len).collect();
    let kept = (config.stage == Stage::Two).then(|| shard.iter().map(Range::len).sum());
    let reduction = OwnerReduce {
        replicas: replicas.clone(),
        divisions: divisions.to_vec(),
        shard: shard.to_vec(),
        ranges,
    };
    let reducer = Reducer::new(sizes, slots, kept, config.overlap, reduction);
    if config.stage == Stage::Two {
        params.set_gradients(Storage::Sharded(reducer.clone()));
    }
    reducer
}

/// Reduces each slice of a bucket to its owner.
struct OwnerReduce {
    replicas: Replicas,
    divisions: Vec<Division>,
    /// What this rank updates, as ranges of the flat buffers.
    shard: Vec<Range<usize>>,
    /// Each bucket's range of the flat buffers.
    ranges: Vec<Range<usize>>,
}

impl<T: Stored> Reduction<T> for OwnerReduce {
    // ANCHOR: reduce
    /// Sends each owner its slice of the gradients of one bucket.
    fn start(&self, params: &Params, step: &mut Averaging<T>, bucket: usize) -> comm::Result<()> {
        let range = self.ranges[bucket].clone();
        let here = |division: &&Division| division.whole().contains(&range.start);
        let comm = self.replicas.of(self.divisions.iter().find(here).is_some_and(Division::expert));
        if comm.size() == 1 && !step.keeps_shard() {
            return Ok(()); // the flat buffer has the average already
        }
        let flat = || params.stored_gradients::<T>()[range.clone()].to_vec();
        let mut gradients = step.take(bucket).unwrap_or_else(flat);
        let owners: Vec<_> =
            self.divisions.iter().flat_map(|division| division.owners(&range)).collect();
        // From the bucket's end to its start, so that splitting off a slice copies only that slice.
        for (owner, owned) in owners.into_iter().rev() {
            let slice = match owned.start - range.start {
                0 => std::mem::take(&mut gradients),
                start => gradients.split_off(start),
            };
            let pending = comm.start_reduce(slice, Reduce::Mean, owner)?;
            step.in_flight
                .push(Target { bucket, range: owned.clone() }, owned.len(), pending);
        }
        step.peak_bytes = step.peak_bytes.max(step.bytes());
        Ok(())
    }
    // ANCHOR_END: reduce

    /// The owner stores a reduced slice; other ranks free its memory.
    fn store(
        &self,
        params: &Params,
        step: &mut Averaging<T>,
        Target { range, .. }: Target,
        mean: Vec<T>,
        _seen: Averaged,
    ) {
        let is_here = |owned: &Range<usize>| owned.start <= range.start && range.end <= owned.end;
        let Some(number) = self.shard.iter().position(is_here) else {
            return;
        };
        if step.keeps_shard() {
            let earlier: usize = self.shard[..number].iter().map(Range::len).sum();
            step.keep(earlier + range.start - self.shard[number].start, &mean);
        } else {
            params.stored_gradients::<T>()[range].copy_from_slice(&mean);
        }
    }
}
