//! Stage 3: parameters, gradients and optimizer, everything is divided. PyTorch's name is FSDP, fully sharded data parallel.
//!
//! A unit's life in a step: gather, forward, drop, gather, backward, drop, and its gradients, once they are complete, are
//! reduce-scattered, so that each rank gets the average of the part that it will update.

use super::gather::Gathered;
use super::units::Units;
use super::{Averaged, Each, Engine, Event, Held, Visit, Volumes, What, ZeroConfig};
use crate::comm::{self, Comm, Reduce};
use crate::optim::{AdamW, Begin, Fragment, begun};
use crate::parallel::buckets::{Buckets, Step};
use crate::parallel::sharded_norm;
use crate::tensor::stored::{Stored, add};
use crate::tensor::{Collect, Gather, Home, Listener, Params, Spec};
use anyhow::Result;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(super) struct FullySharded<T: Stored> {
    params: Arc<Params>,
    comm: Comm,
    shards: Arc<Shards<T>>,
    optimizer: AdamW,
    local_norm: bool,
    _listener: Listener,
}

/// This rank's shards; layers reach them through their handles.
struct Shards<T> {
    comm: Comm,
    gathered: Gathered<T>,
    overlap: bool,
    /// A unit's gradients are a bucket.
    buckets: Buckets<usize, T>,
    /// This rank's share of the gradients, averaged.
    kept: Mutex<Vec<T>>,
}

impl<T: Stored> FullySharded<T> {
    pub fn new(params: &Arc<Params>, comm: &Comm, config: &ZeroConfig, begin: Begin) -> Result<FullySharded<T>> {
        let units = Arc::new(Units::new(params.specs(), comm.size(), config.wrap, config.persistence_threshold));
        let fragment = |spec: &Arc<Spec>| {
            let sharded = units.place(spec).sharded;
            let elements = sharded.range(comm.rank());
            let padding = sharded.part() - elements.len();
            (spec.clone(), elements, padding)
        };
        let share = Fragment::end_to_end(units.units.iter().flat_map(|unit| &unit.specs).map(fragment));
        let offload = config.offload.as_ref();
        let values = begun::<T>(&share, begin, offload)?;
        let optimizer = AdamW::of_share::<T>(config.adamw, share, begin, offload)?;
        let shards = Arc::new(Shards {
            comm: comm.clone(),
            overlap: config.overlap,
            buckets: Buckets::new(params.specs().iter().map(|spec| units.place(spec).unit).collect()),
            kept: Mutex::new(vec![T::zeroed(); units.share()]),
            gathered: Gathered::new(comm, units, values, config.prefetch_bucket),
        });
        params.set_values(Home::Sharded(shards.clone()));
        params.set_gradients(Home::Sharded(shards.clone()));
        let hooked = shards.clone();
        let listener =
            params.listen(Box::new(move |_, spec| hooked.gradient_complete(spec).map_err(candle_core::Error::wrap)));
        let (params, comm, local_norm) = (params.clone(), comm.clone(), config.local_norm);
        Ok(FullySharded { params, comm, shards, optimizer, local_norm, _listener: listener })
    }
}

impl<T: Stored> Gather for Shards<T> {
    fn value(&self, spec: &Spec) -> candle_core::Result<(Arc<Vec<f32>>, Range<usize>)> {
        self.gathered.value(spec)
    }
}

impl<T: Stored> Collect for Shards<T> {
    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> candle_core::Result<()> {
        let place = self.gathered.units.place(spec);
        let numel = self.gathered.units.units[place.unit].numel;
        let mut step = self.buckets.step();
        let unit = step.filling[place.unit].get_or_insert_with(|| vec![T::zeroed(); numel]);
        T::change(&mut unit[place.start..][..spec.numel()], add);
        Ok(())
    }
}

impl<T: Stored> Shards<T> {
    // ANCHOR: reduce_scatter
    /// When all gradients of a unit are complete, each rank gets the average of its part, and no rank the rest.
    fn gradient_complete(&self, spec: &Spec) -> comm::Result<()> {
        let mut step = self.buckets.step();
        if let Some(number) = self.buckets.complete(&mut step, spec) {
            if step.set_out.iter().sum::<usize>().is_multiple_of(step.set_out.len()) {
                // A backward pass has completed all units.
                self.gathered.turn_forward();
            }
            self.set_out(&mut step, number)?;
        }
        self.arrive(&mut step, !self.overlap)
    }

    fn set_out(&self, step: &mut Step<usize, T>, number: usize) -> comm::Result<()> {
        let units = &self.gathered.units;
        let unit = &units.units[number];
        let whole = step.filling[number].take().unwrap_or_default();
        let bytes = self.bytes(step) + size_of::<T>() * (whole.len() + unit.part * units.ranks);
        step.peak_bytes = step.peak_bytes.max(bytes);
        let pending = self.comm.start_reduce_scatter(units.cut(unit, &whole), Reduce::Mean)?;
        step.in_flight.push(number, pending);
        Ok(())
    }

    /// This rank's part of a unit's gradients adds to those of earlier micro-steps.
    fn arrive(&self, step: &mut Step<usize, T>, wait: bool) -> comm::Result<()> {
        Buckets::arrive(step, wait, |_, number, mean, seen| {
            let unit = &self.gathered.units.units[number];
            add(&mut self.kept()[unit.start..unit.start + unit.part], &mean);
            self.gathered.note(Event { unit: number, what: What::ReduceScatter, start: seen.start, end: seen.end });
        })
    }
    // ANCHOR_END: reduce_scatter

    fn bytes(&self, step: &Step<usize, T>) -> usize {
        let (units, filling) = (&self.gathered.units, step.filling.iter().flatten().map(Vec::len).sum::<usize>());
        let in_flight: usize = step.in_flight.all().map(|&number| units.units[number].part * units.ranks).sum();
        size_of::<T>() * (filling + in_flight)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Stored> Engine for FullySharded<T> {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        self.shards.buckets.begin();
        self.shards.kept().fill(T::zeroed());
        self.shards.gathered.open()
    }

    /// Every micro-step averages its gradients: no rank has room for whole ones.
    fn synchronise(&self, _last_micro_step: bool) {
        self.shards.gathered.turn_back();
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        let buckets = &self.shards.buckets;
        let mut step = buckets.step();
        for number in buckets.left_behind(&mut step) {
            self.shards.set_out(&mut step, number)?;
        }
        self.shards.arrive(&mut step, true)?;
        self.shards.gathered.close();
        buckets.ensure_complete(&step)?;
        Ok(std::mem::take(&mut step.averaged))
    }

    fn add_copies(&mut self, group: &Comm) -> Result<()> {
        super::add_copies(group, self.optimizer.share(), &mut self.shards.kept())
    }

    fn norm<'a>(&'a self, mut groups: Vec<&'a Comm>, numel: usize) -> Result<f64> {
        let kept = self.shards.kept();
        groups.extend((!self.local_norm).then_some(&self.comm));
        sharded_norm(&groups, &super::counted(self.optimizer.share(), &kept), numel)
    }

    fn update(&mut self, lr: f64, scale: f32) -> Result<()> {
        let FullySharded { shards, optimizer, .. } = self;
        let start = Instant::now();
        shards.gathered.update(|values| optimizer.update(values, &shards.kept(), lr, scale))?;
        let end = Instant::now();
        for unit in 0..shards.gathered.units.units.len() {
            shards.gathered.note(Event { unit, what: What::Step, start, end });
        }
        Ok(())
    }

    fn visit(&mut self, each: &mut Visit) -> Result<()> {
        let FullySharded { shards, optimizer, .. } = self;
        shards.gathered.update(|values| optimizer.visit(values, each))
    }

    fn optimizers(&mut self) -> &mut [AdamW] {
        std::slice::from_mut(&mut self.optimizer)
    }

    fn open(&mut self) -> Result<()> {
        self.shards.gathered.open_aside()
    }

    fn close(&mut self) {
        self.shards.gathered.close();
    }

    fn each(&mut self, each: &mut Each) -> Result<()> {
        self.shards.gathered.each(each)
    }

    fn volumes(&self) -> Volumes {
        let (step, units) = (self.shards.buckets.step(), &self.shards.gathered.units.units);
        let reduced = step.set_out.iter().zip(units).map(|(times, unit)| times * unit.numel).sum();
        Volumes { gathered: self.shards.gathered.numel_a_step(), reduced, bytes_each: size_of::<T>() }
    }

    fn held(&self) -> Held {
        let step = self.shards.buckets.step();
        let (gathered, peak_gathered) = self.shards.gathered.bytes();
        let (parameters, parameters_file) = self.shards.gathered.share_bytes();
        let (optimizer, optimizer_file) = self.optimizer.bytes();
        let whole = size_of::<f32>() * self.params.values().capacity();
        Held {
            parameters,
            gradients: size_of::<T>() * self.shards.kept().capacity(),
            optimizer,
            parameters_file,
            optimizer_file,
            buffers: gathered + self.shards.bytes(&step) + whole,
            // At most: the two need not be at their highest at the same time.
            peak_buffers: peak_gathered + step.peak_bytes,
        }
    }

    fn events(&mut self) -> Vec<Event> {
        self.shards.gathered.take_events()
    }

    fn units(&self) -> Vec<String> {
        self.shards.gathered.units.units.iter().map(|unit| unit.name.clone()).collect()
    }
}
