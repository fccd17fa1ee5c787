//! Stages 0 to 2: every rank holds all parameters. In stage 0 each rank updates all of them, in
//! stages 1 and 2 a shard.
//!
//! Each parameter group is one long vector that is cut into equal ranges, one per rank
//! ([`FlatGroup`]). A rank has the optimizer's state of its ranges only. It gets the averaged
//! gradients of those ranges and updates them. Then the ranks gather all ranges. This gather is the
//! other half of an all-reduce: it carries parameters where DDP's carries gradients. So sharding
//! the optimizer sends no additional bytes.

use super::engine::{Each, StageEngine, Visit, add_copies, counted, scale};
use super::reduce::owner_reducer;
use super::{Averaged, MemoryUsage, Stage, ZeroConfig};
use crate::comm::{Comm, Reduce};
use crate::memory::zeros;
use crate::optim::{AdamW, Fragment, InitialValues, StoredBytes};
use crate::parallel::buckets::Reducer;
use crate::parallel::ddp::all_reducer;
use crate::parallel::partition::FlatGroup;
use crate::parallel::{Replicas, sharded_norm};
use crate::tensor::stored::widen;
use crate::tensor::{Copies, Listener, Params, Storage, Stored};
use anyhow::Result;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Values are stored as `V`, gradients as `G`.
pub(super) struct Replicated<V: Stored, G: Stored> {
    params: Arc<Params>,
    replicas: Replicas,
    stage: Stage,
    add_tied: bool,
    groups: Vec<FlatGroup>,
    /// This rank's range of each group, as offsets in the flat buffers.
    shard: Vec<Range<usize>>,
    /// One optimizer per group, for this rank's range of it.
    optimizers: Vec<AdamW>,
    reducer: Arc<Reducer<G>>,
    _listener: Listener,
    _values: PhantomData<V>,
}

impl<V: Stored, G: Stored> Replicated<V, G> {
    pub fn new(
        params: &Arc<Params>,
        replicas: &Replicas,
        config: &ZeroConfig,
        begin: InitialValues,
    ) -> Result<Replicated<V, G>> {
        let groups = FlatGroup::all(params, |expert| replicas.of(expert).size());
        let mut values: Vec<V> = zeros(params.numel());
        for spec in params.specs() {
            V::change(&mut values[spec.range()], |out| begin(spec, 0..spec.numel(), out));
        }
        if config.stage > Stage::Ddp {
            // Room for the padding: the gather of equal ranges needs it.
            values.reserve_exact(
                groups.iter().map(|group| group.flat.padded() - group.flat.numel).sum(),
            );
        }
        params.set_values(Storage::Local(V::numbers(values)));
        if config.stage < Stage::Two {
            params.set_gradients(Storage::Local(G::numbers(zeros(params.numel()))));
        }
        let updated = |group: &FlatGroup| match config.stage {
            Stage::Ddp => group.whole(),
            _ => group.range(replicas.of(group.expert).rank()),
        };
        let shard: Vec<Range<usize>> = groups.iter().map(updated).collect();
        let reducer = match config.stage {
            Stage::Ddp => {
                let ZeroConfig { reduce_bucket, overlap, algorithm, .. } = *config;
                all_reducer(params, replicas, reduce_bucket, overlap, algorithm)
            }
            _ => owner_reducer(params, replicas, &groups, &shard, config),
        };
        let optimizer = |range: &Range<usize>| {
            let fragments = Fragment::of_range(params.specs(), range.clone());
            AdamW::sharded::<V>(config.adamw, fragments, begin, config.offload.as_ref())
        };
        Ok(Replicated {
            params: params.clone(),
            replicas: replicas.clone(),
            stage: config.stage,
            add_tied: config.add_tied,
            groups,
            optimizers: shard.iter().map(optimizer).collect::<Result<_>>()?,
            shard,
            _listener: reducer.listen(params),
            reducer,
            _values: PhantomData,
        })
    }

    /// Calls `work` with the averaged gradients of this rank's shard, group by group.
    fn with_gradients<R>(&self, work: impl FnOnce(Vec<&mut [G]>) -> R) -> R {
        let mut step = self.reducer.step();
        let keeps_shard = step.keeps_shard();
        let mut flat;
        let mut rest = if keeps_shard {
            step.shard()
        } else {
            flat = self.params.stored_gradients::<G>();
            &mut flat[..]
        };
        let mut end = 0;
        let of_group = |range: &Range<usize>| {
            // A shard that is kept without the rest has no gaps.
            let skipped = if keeps_shard { 0 } else { range.start - end };
            let (group, after) = std::mem::take(&mut rest)[skipped..].split_at_mut(range.len());
            rest = after;
            end = range.end;
            group
        };
        work(self.shard.iter().map(of_group).collect())
    }
}

impl<V: Stored, G: Stored> StageEngine for Replicated<V, G> {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        self.reducer.begin();
        Ok(())
    }

    fn synchronise(&self, last_micro_step: bool) {
        self.reducer.synchronise(last_micro_step);
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        let averaged = self.reducer.finish(&self.params)?;
        if let Some(factor) = self.replicas.expert_factor() {
            self.with_gradients(|gradients| {
                let of_experts =
                    self.groups.iter().zip(gradients).filter(|(group, _)| group.expert);
                of_experts.for_each(|(_, gradients)| scale(gradients, factor));
            });
        }
        Ok(averaged)
    }

    fn add_copies(&mut self, tensor: &Comm) -> Result<()> {
        self.with_gradients(|gradients| {
            for (adamw, group) in self.optimizers.iter().zip(gradients) {
                add_copies(tensor, adamw, group)?;
            }
            Ok(())
        })
    }

    fn add_tied(&mut self, ends: &Comm) -> Result<()> {
        for spec in self
            .params
            .specs()
            .iter()
            .filter(|spec| matches!(spec.copies, Copies::Tied { .. }))
        {
            if self.add_tied {
                let mut sum = self.params.stored_gradients::<G>()[spec.range()].to_vec();
                ends.all_reduce(&mut sum, Reduce::Sum)?;
                self.params.stored_gradients::<G>()[spec.range()].copy_from_slice(&sum);
            }
            self.reducer.complete(&self.params, spec)?;
        }
        Ok(())
    }

    fn norm(&self, comms: &[&Comm], numel: usize) -> Result<f64> {
        self.with_gradients(|gradients| {
            // In stage 0 ranks with different experts hold the same of everything else.
            let first = self.replicas.experts().is_none_or(|experts| experts.rank() == 0);
            let counts = |group: &FlatGroup| first || group.expert || self.stage > Stage::Ddp;
            let groups = self.groups.iter().zip(&self.optimizers).zip(&gradients);
            let counted: Vec<&[G]> = groups
                .filter(|((group, _), _)| counts(group))
                .flat_map(|((_, adamw), gradients)| counted(adamw, gradients))
                .collect();
            sharded_norm(comms, &counted, numel)
        })
    }

    fn update(&mut self, lr: f64, scale: f32) -> Result<()> {
        let mut optimizers = std::mem::take(&mut self.optimizers);
        let updated: Result<()> = self.with_gradients(|gradients| {
            let mut values = self.params.stored_values_mut::<V>();
            for ((adamw, range), group) in optimizers.iter_mut().zip(&self.shard).zip(gradients) {
                adamw.update(&mut values[range.clone()], group, lr, scale)?;
            }
            Ok(())
        });
        self.optimizers = optimizers;
        updated?;
        self.all_gather_values()
    }

    fn visit(&mut self, each: &mut Visit) -> Result<()> {
        let mut values = self.params.stored_values_mut::<V>();
        for (adamw, range) in self.optimizers.iter_mut().zip(&self.shard) {
            adamw.visit(&mut values[range.clone()], &mut *each)?;
        }
        Ok(())
    }

    fn all_gather_values(&mut self) -> Result<()> {
        let updates_all = |group: &FlatGroup| self.replicas.of(group.expert).size() == 1;
        if self.stage == Stage::Ddp || self.groups.iter().all(updates_all) {
            return Ok(()); // every rank has updated all of them
        }
        let mut left = match self.params.set_values(Storage::Unallocated) {
            Storage::Local(mut numbers) => {
                V::of_mut(&mut numbers).map(std::mem::take).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let mut in_flight = Vec::new();
        // From the last group to the first, so that splitting off a group copies only that group.
        for FlatGroup { start, flat, expert } in self.groups.iter().rev() {
            let mut group = if *start == 0 {
                std::mem::take(&mut left)
            } else {
                left.split_off(*start)
            };
            group.resize(flat.padded(), V::zeroed());
            let comm = self.replicas.of(*expert);
            in_flight.push((flat.numel, comm.start_all_gather(group)?));
        }
        let mut values = Vec::new();
        for (numel, gather) in in_flight.into_iter().rev() {
            let mut group = gather.wait()?;
            group.truncate(numel);
            if values.is_empty() {
                values = group
            } else {
                values.extend_from_slice(&group)
            }
        }
        self.params.set_values(Storage::Local(V::numbers(values)));
        Ok(())
    }

    fn optimizers(&mut self) -> &mut [AdamW] {
        &mut self.optimizers
    }

    fn each(&mut self, each: &mut Each) -> Result<()> {
        let values = self.params.stored_values::<V>();
        let mut wide = Vec::new();
        for spec in self.params.specs() {
            wide.resize(spec.numel(), 0.0);
            widen(&values[spec.range()], &mut wide);
            each(spec, &wide);
        }
        Ok(())
    }

    fn buckets(&self) -> Vec<usize> {
        self.reducer.step().sizes()
    }

    fn volumes(&self, expert: bool) -> [usize; 2] {
        let groups = self.groups.iter().filter(|group| group.expert == expert);
        let gathered = if self.stage > Stage::Ddp {
            groups.map(|group| group.flat.numel).sum()
        } else {
            0
        };
        [gathered, self.reducer.reduced(&self.params, expert)]
    }

    fn memory(&self) -> MemoryUsage {
        let step = self.reducer.step();
        let buffers = step.bytes();
        let optimizer: StoredBytes = self.optimizers.iter().map(AdamW::bytes).sum();
        MemoryUsage {
            parameters: self.params.value_bytes(),
            gradients: self.params.gradient_bytes() + step.shard_bytes(),
            optimizer: optimizer.memory,
            parameters_offloaded: 0,
            optimizer_offloaded: optimizer.offloaded,
            buffers,
            peak_buffers: step.peak_bytes.max(buffers),
        }
    }
}
