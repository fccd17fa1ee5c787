//! Stages 0 to 2: every rank holds all parameters. In stage 0 each rank updates all of them, in
//! stages 1 and 2 a shard.
//!
//! Each parameter group is one long vector that is cut into equal ranges, one per rank
//! ([`FlatGroup`](crate::parallel::partition::FlatGroup)). With Muon, hidden matrices go to ranks
//! as wholes. A rank has the optimizer's state of its ranges only. It gets the averaged gradients
//! of those ranges and updates them. Then the ranks gather all ranges. This gather is the other
//! half of an all-reduce: it carries parameters where DDP's carries gradients. So sharding the
//! optimizer sends no additional bytes.

use super::division::Division;
use super::engine::{Each, StageEngine, Visit, add_copies, counted, scale};
use super::reduce::owner_reducer;
use super::{Averaged, MemoryUsage, Stage, ZeroConfig};
use crate::comm::{Comm, Reduce};
use crate::memory::zeros;
use crate::optim::{AdamW, Fragment, Gathered, InitialValues, Muon, Optimizer, StoredBytes};
use crate::parallel::buckets::Reducer;
use crate::parallel::ddp::all_reducer;
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
    divisions: Vec<Division>,
    /// What this rank updates, as ranges of the flat buffers.
    shard: Vec<Range<usize>>,
    /// One optimizer for each range.
    optimizers: Vec<Optimizer>,
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
        let divisions = Division::all(params, replicas, config.muon.is_some());
        let mut values: Vec<V> = zeros(params.numel());
        for spec in params.specs() {
            V::change(&mut values[spec.range()], |out| begin(spec, 0..spec.numel(), out));
        }
        if config.stage > Stage::Ddp {
            // Room for the padding: the gather of equal ranges needs it.
            let padding = |division: &Division| match division {
                Division::Cut(group) => group.flat.padded() - group.flat.numel,
                Division::Owned(_) => 0, // it is packed into another buffer
            };
            values.reserve_exact(divisions.iter().map(padding).sum());
        }
        params.set_values(Storage::Local(V::numbers(values)));
        if config.stage < Stage::Two {
            params.set_gradients(Storage::Local(G::numbers(zeros(params.numel()))));
        }
        let updated = |division: &Division| match config.stage {
            Stage::Ddp => vec![division.whole()],
            _ => division.held(replicas.of(division.expert()).rank()),
        };
        let shard: Vec<Range<usize>> = divisions.iter().flat_map(updated).collect();
        let reducer = match config.stage {
            Stage::Ddp => {
                let ZeroConfig { reduce_bucket, overlap, algorithm, .. } = *config;
                all_reducer(params, replicas, reduce_bucket, overlap, algorithm)
            }
            _ => owner_reducer(params, replicas, &divisions, &shard, config),
        };
        let optimizer = |range: &Range<usize>| {
            let fragments = Fragment::of_range(params.specs(), range.clone());
            let offload = config.offload.as_ref();
            let hidden = fragments.first().is_some_and(|first| first.spec.is_hidden_matrix());
            match config.muon.filter(|_| hidden) {
                Some(muon) => {
                    Muon::sharded::<V>(muon, fragments, begin, offload).map(Optimizer::Muon)
                }
                None => AdamW::sharded::<V>(config.adamw, fragments, begin, offload)
                    .map(Optimizer::AdamW),
            }
        };
        Ok(Replicated {
            params: params.clone(),
            replicas: replicas.clone(),
            stage: config.stage,
            add_tied: config.add_tied,
            divisions,
            optimizers: shard.iter().map(optimizer).collect::<Result<_>>()?,
            shard,
            _listener: reducer.listen(params),
            reducer,
            _values: PhantomData,
        })
    }

    /// Whether a range of the shard is of experts.
    fn is_expert(&self, range: &Range<usize>) -> bool {
        let here = |division: &&Division| division.whole().contains(&range.start);
        self.divisions.iter().find(here).is_some_and(Division::expert)
    }

    /// Calls `work` with the averaged gradients of this rank's shard, range by range.
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
        let of_range = |range: &Range<usize>| {
            // A shard that is kept without the rest has no gaps.
            let skipped = if keeps_shard { 0 } else { range.start - end };
            let (here, after) = std::mem::take(&mut rest)[skipped..].split_at_mut(range.len());
            rest = after;
            end = range.end;
            here
        };
        work(self.shard.iter().map(of_range).collect())
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
        let mut averaged = self.reducer.finish(&self.params)?;
        self.with_gradients(|gradients| {
            for shard in gradients {
                averaged.extend(self.replicas.average_between(shard)?);
            }
            anyhow::Ok(())
        })?;
        if let Some(factor) = self.replicas.expert_factor() {
            self.with_gradients(|gradients| {
                let of_experts =
                    self.shard.iter().zip(gradients).filter(|(range, _)| self.is_expert(range));
                of_experts.for_each(|(_, gradients)| scale(gradients, factor));
            });
        }
        Ok(averaged)
    }

    fn add_copies(&mut self, tensor: &Comm) -> Result<()> {
        self.with_gradients(|gradients| {
            for (optimizer, gradients) in self.optimizers.iter().zip(gradients) {
                add_copies(tensor, optimizer, gradients)?;
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
            let counts =
                |range: &Range<usize>| first || self.stage > Stage::Ddp || self.is_expert(range);
            let ranges = self.shard.iter().zip(&self.optimizers).zip(&gradients);
            let counted: Vec<&[G]> = ranges
                .filter(|((range, _), _)| counts(range))
                .flat_map(|((_, optimizer), gradients)| counted(optimizer, gradients))
                .collect();
            sharded_norm(comms, &counted, numel)
        })
    }

    fn update(&mut self, lr: f64, scale: f32, gathered: &Gathered) -> Result<()> {
        let mut optimizers = std::mem::take(&mut self.optimizers);
        let updated: Result<()> = self.with_gradients(|gradients| {
            let mut values = self.params.stored_values_mut::<V>();
            let ranges = optimizers.iter_mut().zip(&self.shard).zip(gradients);
            for ((optimizer, range), gradients) in ranges {
                let values = &mut values[range.clone()];
                optimizer.update(values, gradients, lr, scale, gathered)?;
            }
            Ok(())
        });
        self.optimizers = optimizers;
        updated?;
        self.all_gather_values()
    }

    fn visit(&mut self, each: &mut Visit) -> Result<()> {
        let mut values = self.params.stored_values_mut::<V>();
        for (optimizer, range) in self.optimizers.iter_mut().zip(&self.shard) {
            optimizer.visit(&mut values[range.clone()], &mut *each)?;
        }
        Ok(())
    }

    fn all_gather_values(&mut self) -> Result<()> {
        let updates_all = |division: &Division| self.replicas.of(division.expert()).size() == 1;
        if self.stage == Stage::Ddp || self.divisions.iter().all(updates_all) {
            return Ok(()); // every rank has updated all of them
        }
        let mut left = match self.params.set_values(Storage::Unallocated) {
            Storage::Local(mut numbers) => {
                V::of_mut(&mut numbers).map(std::mem::take).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let mut in_flight = Vec::new();
        // From the last range to the first, so that splitting off a range copies only that range.
        for division in self.divisions.iter().rev() {
            let here = match division.whole().start {
                0 => std::mem::take(&mut left),
                start => left.split_off(start),
            };
            let comm = self.replicas.of(division.expert());
            let packed = division.packed(here, comm.rank());
            in_flight.push((division, comm.start_all_gather(packed)?));
        }
        let mut values = Vec::new();
        for (division, gather) in in_flight.into_iter().rev() {
            let here = division.unpacked(gather.wait()?);
            if values.is_empty() {
                values = here
            } else {
                values.extend_from_slice(&here)
            }
        }
        self.params.set_values(Storage::Local(V::numbers(values)));
        Ok(())
    }

    fn optimizers(&mut self) -> &mut [Optimizer] {
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
        let gathered = if self.stage > Stage::Ddp {
            let divisions = self.divisions.iter().filter(|one| one.expert() == expert);
            divisions.map(Division::gathered).sum()
        } else {
            0
        };
        [gathered, self.reducer.reduced(&self.params, expert)]
    }

    fn memory(&self) -> MemoryUsage {
        let step = self.reducer.step();
        let buffers = step.bytes();
        let optimizer: StoredBytes = self.optimizers.iter().map(Optimizer::bytes).sum();
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
