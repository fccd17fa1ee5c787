//! Stage 3: parameters, gradients and optimizer state are all sharded. PyTorch calls this FSDP,
//! fully sharded data parallel.
//!
//! A unit goes through these phases in a step: gather, forward, free, gather, backward, free. Once
//! its gradients are complete, the ranks reduce-scatter them. Each rank gets the average of the
//! slice that it will update. Under HSDP these are the ranks of one group, and groups average once
//! per step what their ranks have added up.

use super::engine::{Each, StageEngine, Visit, add_copies, counted, scale};
use super::gather::Gatherer;
use super::mistake::{Early, Mistake};
use super::units::{Offsets, Unit, Units};
use super::{Averaged, Event, EventKind, MemoryUsage, ZeroConfig};
use crate::comm::{self, Comm, Reduce};
use crate::optim::{
    AdamW, Fragment, Gathered, InitialValues, Muon, Optimizer, StateStore, StoredBytes, Window,
    Windowed, initial_store,
};
use crate::parallel::buckets::{Averaging, Reducer, Reduction, Slot, Target};
use crate::parallel::{Replicas, sharded_norm};
use crate::tensor::{Listener, Params, Spec, Storage, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Values are stored as `V`, gradients as `G`.
pub(super) struct FullySharded<V: Stored, G: Stored> {
    params: Arc<Params>,
    gatherer: Arc<Gatherer<V>>,
    reducer: Arc<Reducer<G>>,
    /// AdamW of what is cut. With Muon, also that of this rank's own matrices, which follow.
    optimizers: Vec<Optimizer>,
    replicas: Replicas,
    /// Only for a mistake on purpose.
    early: Option<Early<G>>,
    _listener: Listener,
}

impl<V: Stored, G: Stored> FullySharded<V, G> {
    pub fn new(
        params: &Arc<Params>,
        replicas: &Replicas,
        config: &ZeroConfig,
        begin: InitialValues,
    ) -> Result<FullySharded<V, G>> {
        let units = Arc::new(Units::new(
            params.specs(),
            |expert| replicas.of(expert).size(),
            config.wrap,
            config.persistence_threshold,
            config.muon.map(|_| replicas.of(false).rank()),
        ));
        let [cut, owned] = units.fragments(|expert| replicas.of(expert).rank());
        let offload = config.offload.as_ref();
        let all = [&cut[..], &owned].concat();
        let all = all.into_iter().map(|one| (one.spec, one.elements, one.padding));
        let values = initial_store::<V>(&Fragment::end_to_end(all), begin, offload)?;
        let adamw = AdamW::sharded::<V>(config.adamw, cut, begin, offload)?;
        let mut optimizers = vec![Optimizer::AdamW(adamw)];
        if let Some(muon) = config.muon {
            let muon = Muon::sharded::<V>(muon, owned, begin, offload)?;
            optimizers.push(Optimizer::Muon(muon));
        }
        // One bucket per unit.
        let sizes = units.units.iter().map(|unit| unit.numel).collect();
        let slot = |spec: &Arc<Spec>| {
            let Offsets { unit, in_unit, .. } = units.offsets(spec);
            Slot { bucket: unit, offset: in_unit }
        };
        let slots = params.specs().iter().map(slot).collect();
        let shard = Some(units.shard_numel().iter().sum());
        let gatherer = Arc::new(Gatherer::new(replicas, units, values, config.prefetch_bucket));
        let reduction = ReduceScatter { replicas: replicas.clone(), gatherer: gatherer.clone() };
        let reducer = Reducer::new(sizes, slots, shard, config.overlap, reduction);
        params.set_values(Storage::Sharded(gatherer.clone()));
        params.set_gradients(Storage::Sharded(reducer.clone()));
        let listener = reducer.listen(params);
        Ok(FullySharded {
            params: params.clone(),
            gatherer,
            reducer,
            optimizers,
            replicas: replicas.clone(),
            early: (config.mistake == Some(Mistake::AccumulateLate)).then(Early::new),
            _listener: listener,
        })
    }
}

/// Reduce-scatters each unit's gradients.
struct ReduceScatter<V> {
    replicas: Replicas,
    gatherer: Arc<Gatherer<V>>,
}

impl<V: Stored, G: Stored> Reduction<G> for ReduceScatter<V> {
    /// All gradients of a unit are complete: each rank gets the average of its slice only.
    fn start(&self, _params: &Params, step: &mut Averaging<G>, number: usize) -> comm::Result<()> {
        if step.is_even() {
            // The backward pass has completed all units.
            self.gatherer.start_forward();
        }
        let units = &self.gatherer.units;
        let unit = &units.units[number];
        let whole = step.take(number).unwrap_or_default();
        let elements = unit.ranks * unit.shard;
        step.peak_bytes =
            step.peak_bytes.max(step.bytes() + size_of::<G>() * (whole.len() + elements));
        let comm = self.replicas.of(unit.expert);
        let pending = comm.start_reduce_scatter(units.cut(unit, &whole), Reduce::Mean)?;
        let range = unit.start..unit.start + unit.cut;
        step.in_flight.push(Target { bucket: number, range }, elements, pending);
        Ok(())
    }

    /// Adds this rank's slice of a unit's gradients to those of earlier micro-steps.
    fn store(
        &self,
        _params: &Params,
        step: &mut Averaging<G>,
        Target { bucket: unit, range }: Target,
        mean: Vec<G>,
        seen: Averaged,
    ) {
        let (cut, owned) = mean.split_at(range.len());
        step.keep(range.start, cut);
        let mine = self.gatherer.units.units[unit].owned.clone();
        step.keep(mine.start, &owned[..mine.len()]);
        let Averaged { start, end, .. } = seen;
        let event = Event { unit, kind: EventKind::ReduceScatter, start, end };
        self.gatherer.state().events.push(event);
    }
}

impl<V: Stored, G: Stored> StageEngine for FullySharded<V, G> {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        self.reducer.begin();
        self.gatherer.open(true)
    }

    /// Every micro-step averages its gradients, because no rank has room for whole ones.
    fn synchronise(&self, last_micro_step: bool) {
        if let Some(early) = self.early.as_ref().filter(|_| last_micro_step) {
            early.set_aside(self.reducer.step().shard());
        }
        self.gatherer.start_backward();
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        let averaged = self.reducer.finish(&self.params);
        self.gatherer.close();
        let mut averaged = averaged?;
        averaged.extend(self.replicas.average_between(self.reducer.step().shard())?);
        if let Some(early) = &self.early {
            early.add_to(self.reducer.step().shard());
        }
        if let Some(factor) = self.replicas.expert_factor() {
            let mut step = self.reducer.step();
            for unit in self.gatherer.units.units.iter().filter(|unit| unit.expert) {
                scale(&mut step.shard()[unit.start..][..unit.cut], factor);
            }
        }
        Ok(averaged)
    }

    fn add_copies(&mut self, tensor: &Comm) -> Result<()> {
        let mut step = self.reducer.step();
        let parts = self.gatherer.units.parts(step.shard());
        for (optimizer, gradients) in self.optimizers.iter().zip(parts) {
            add_copies(tensor, optimizer, gradients)?;
        }
        Ok(())
    }

    fn norm(&self, comms: &[&Comm], numel: usize) -> Result<f64> {
        let mut step = self.reducer.step();
        let parts = self.gatherer.units.parts(step.shard());
        let all = self.optimizers.iter().zip(&parts);
        let counted: Vec<&[G]> =
            all.flat_map(|(optimizer, gradients)| counted(optimizer, gradients)).collect();
        sharded_norm(comms, &counted, numel)
    }

    fn update(&mut self, lr: f64, scale: f32, gathered: &Gathered) -> Result<()> {
        let FullySharded { gatherer, reducer, optimizers, .. } = self;
        let mut step = reducer.step();
        let start = Instant::now();
        let mut state = gatherer.state();
        let parts = gatherer.units.parts(step.shard());
        let mut at = 0;
        for (optimizer, gradients) in optimizers.iter_mut().zip(parts) {
            let mut values = Part { of: &mut state.values, at };
            optimizer.update(&mut values, gradients, lr, scale, gathered)?;
            at += gradients.len();
        }
        let end = Instant::now();
        let event = |unit| Event { unit, kind: EventKind::Step, start, end };
        state.events.extend((0..gatherer.units.units.len()).map(event));
        Ok(())
    }

    fn visit(&mut self, each: &mut Visit) -> Result<()> {
        let FullySharded { gatherer, optimizers, .. } = self;
        let mut state = gatherer.state();
        let starts = [0, gatherer.units.shard_numel()[0]];
        for (optimizer, at) in optimizers.iter_mut().zip(starts) {
            optimizer.visit(&mut Part { of: &mut state.values, at }, &mut *each)?;
        }
        Ok(())
    }

    fn optimizers(&mut self) -> &mut [Optimizer] {
        &mut self.optimizers
    }

    fn open(&mut self) -> Result<()> {
        self.gatherer.open(false)
    }

    fn close(&mut self) {
        self.gatherer.close();
    }

    fn each(&mut self, each: &mut Each) -> Result<()> {
        self.gatherer.each(each)
    }

    fn volumes(&self, expert: bool) -> [usize; 2] {
        let gathered = self.gatherer.gathered_per_step(expert);
        let reduced = self.reducer.reduced(&self.params, expert);
        // Owners' padding goes with every reduction of a unit.
        let units = &self.gatherer.units.units;
        let padding: usize = units.iter().map(|unit| unit.gathered() - unit.numel).sum();
        [gathered, reduced + reduced / self.params.numel().max(1) * padding]
    }

    fn memory(&self) -> MemoryUsage {
        let step = self.reducer.step();
        let (gathered, peak_gathered) = self.gatherer.bytes();
        let parameters = self.gatherer.shard_bytes();
        let optimizer: StoredBytes = self.optimizers.iter().map(Optimizer::bytes).sum();
        let whole = self.params.value_bytes();
        MemoryUsage {
            parameters: parameters.memory,
            gradients: step.shard_bytes(),
            optimizer: optimizer.memory,
            parameters_offloaded: parameters.offloaded,
            optimizer_offloaded: optimizer.offloaded,
            buffers: gathered + step.bytes() + whole,
            // An upper bound: the two peaks need not coincide.
            peak_buffers: peak_gathered + step.peak_bytes,
        }
    }

    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.gatherer.state().events)
    }

    fn units(&self) -> &[Unit] {
        &self.gatherer.units.units
    }
}

/// A store's numbers from an offset on.
struct Part<'a, T> {
    of: &'a mut StateStore<T>,
    at: usize,
}

impl<T: Stored> Windowed<T> for Part<'_, T> {
    fn window(&mut self, range: Range<usize>) -> Result<Window<'_, T>> {
        self.of.window(self.at + range.start..self.at + range.end)
    }
}
