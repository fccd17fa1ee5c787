//! Stage 3: parameters, gradients and optimizer, everything is divided. PyTorch's name is FSDP, fully sharded data parallel.
//!
//! A unit's life in a step: gather, forward, drop, gather, backward, drop, and its gradients, once they are complete, are
//! reduce-scattered, so that each rank gets the average of the part that it will update.

use super::begin::{Begin, Stretch};
use super::gather::Gathered;
use super::optimizer::Optimizer;
use super::units::Units;
use super::{Averaged, Each, Engine, Event, Held, Volumes, What, ZeroConfig};
use crate::comm::{self, Comm, Reduce};
use crate::optim::{clip_scale, sharded_norm, stored_norm};
use crate::parallel::queue::Queue;
use crate::tensor::stored::{Stored, add};
use crate::tensor::{Elsewhere, Params, Spec};
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(super) struct Sharded<T: Stored> {
    params: Arc<Params>,
    comm: Comm,
    model: Arc<Model<T>>,
    optimizer: Optimizer,
    local_norm: bool,
}

/// What layers reach through their handles.
struct Model<T> {
    comm: Comm,
    gathered: Gathered<T>,
    overlap: bool,
    step: Mutex<Step<T>>,
}

/// Gradients.
struct Step<T> {
    /// Units between their first gradient and their last.
    filling: Vec<Option<Vec<T>>>,
    /// Parameters of each unit whose gradient is complete.
    complete: Vec<usize>,
    /// This rank's share, averaged.
    share: Vec<T>,
    /// Units under way.
    under_way: Queue<usize, T>,
    averaged: Vec<Averaged>,
    /// Units that this backward pass has completed.
    completed: usize,
    /// Backward passes of this step that have completed all.
    passes: usize,
    peak_bytes: usize,
}

impl<T: Stored> Sharded<T> {
    pub fn new(params: &Arc<Params>, comm: &Comm, config: &ZeroConfig, begin: Begin) -> Result<Sharded<T>> {
        let units = Arc::new(Units::new(&params.specs(), comm.size(), config.wrap, config.persistence_threshold));
        let stretch = |spec: &Arc<Spec>| {
            let sharded = units.place(spec).sharded;
            Stretch { spec: spec.clone(), elements: sharded.range(comm.rank()), len: sharded.part() }
        };
        let stretches: Vec<Stretch> = units.units.iter().flat_map(|unit| &unit.specs).map(stretch).collect();
        let offload = config.offload.as_ref();
        let optimizer = Optimizer::new::<T>(config.adamw, &stretches, &begin, offload)?;
        let gathered =
            Gathered::new(comm, units.clone(), begin.share::<T>(&stretches, offload)?, config.prefetch_bucket);
        drop(begin);
        let step = Step {
            filling: units.units.iter().map(|_| None).collect(),
            complete: vec![0; units.units.len()],
            share: vec![T::zeroed(); units.share()],
            under_way: Queue::default(),
            averaged: Vec::new(),
            completed: 0,
            passes: 0,
            peak_bytes: 0,
        };
        let (overlap, step) = (config.overlap, Mutex::new(step));
        let model = Arc::new(Model { comm: comm.clone(), gathered, overlap, step });
        params.set_elsewhere(Some(model.clone()));
        let hooked = model.clone();
        params
            .set_hook(Some(Box::new(move |_, spec| hooked.gradient_complete(spec).map_err(candle_core::Error::wrap))));
        let local_norm = config.local_norm;
        Ok(Sharded { params: params.clone(), comm: comm.clone(), model, optimizer, local_norm })
    }
}

impl<T: Stored> Elsewhere for Model<T> {
    fn value(&self, spec: &Spec) -> candle_core::Result<(Arc<Vec<f32>>, Range<usize>)> {
        self.gathered.value(spec)
    }

    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> candle_core::Result<()> {
        let place = self.gathered.units.place(spec);
        let numel = self.gathered.units.units[place.unit].numel;
        let mut step = self.step();
        let unit = step.filling[place.unit].get_or_insert_with(|| vec![T::zeroed(); numel]);
        T::change(&mut unit[place.start..][..spec.numel()], add);
        Ok(())
    }
}

impl<T: Stored> Model<T> {
    // ANCHOR: reduce_scatter
    /// When all gradients of a unit are complete, each rank is to have the average of its part, and nobody the rest.
    fn gradient_complete(&self, spec: &Spec) -> comm::Result<()> {
        let (units, mut step) = (&self.gathered.units, self.step());
        let number = units.place(spec).unit;
        let unit = &units.units[number];
        step.complete[number] += 1;
        if step.complete[number] == unit.specs.len() {
            step.complete[number] = 0;
            step.completed += 1;
            if step.completed == units.units.len() {
                step.passes += 1;
                self.gathered.turn_forward();
            }
            let whole = step.filling[number].take().unwrap_or_default();
            let bytes = self.bytes(&step) + size_of::<T>() * (whole.len() + unit.part * units.ranks);
            step.peak_bytes = step.peak_bytes.max(bytes);
            let pending = self.comm.start_reduce_scatter(units.cut(unit, &whole), Reduce::Mean)?;
            step.under_way.push(number, pending);
        }
        while let Some(reduced) = if self.overlap { step.under_way.ready()? } else { step.under_way.next()? } {
            self.arrived(&mut step, reduced);
        }
        Ok(())
    }

    /// This rank's part of a unit's gradients adds to those of earlier micro-steps.
    fn arrived(&self, step: &mut Step<T>, (number, mean, seen): (usize, Vec<T>, Averaged)) {
        let unit = &self.gathered.units.units[number];
        add(&mut step.share[unit.start..unit.start + unit.part], &mean);
        self.gathered.note(Event { unit: number, what: What::ReduceScatter, start: seen.start, end: seen.end });
        step.averaged.push(seen);
    }
    // ANCHOR_END: reduce_scatter

    fn bytes(&self, step: &Step<T>) -> usize {
        let (units, filling) = (&self.gathered.units, step.filling.iter().flatten().map(Vec::len).sum::<usize>());
        let under_way: usize = step.under_way.all().map(|&number| units.units[number].part * units.ranks).sum();
        size_of::<T>() * (filling + under_way)
    }

    fn step(&self) -> MutexGuard<'_, Step<T>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Stored> Engine for Sharded<T> {
    fn begin(&mut self) -> Result<()> {
        let mut step = self.model.step();
        step.share.fill(T::zeroed());
        (step.completed, step.passes) = (0, 0);
        drop(step);
        self.model.gathered.open()
    }

    fn synchronise(&self, _last_micro_step: bool) {
        self.model.gathered.turn_back();
        // Every micro-step averages its gradients: nobody has room for whole ones.
        self.model.step().completed = 0;
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        let mut step = self.model.step();
        while let Some(reduced) = step.under_way.next()? {
            self.model.arrived(&mut step, reduced);
        }
        self.model.gathered.close();
        let (done, all) = (step.completed, self.model.gathered.units.units.len());
        ensure!(
            done == all,
            "the gradients of {done} of {all} units were averaged: a parameter got no gradient in this step"
        );
        Ok(std::mem::take(&mut step.averaged))
    }

    fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        let Sharded { params, comm, model, optimizer, local_norm } = self;
        let (start, gradients) = (Instant::now(), &model.step().share[..]);
        let norm =
            if *local_norm { stored_norm(&[gradients]) } else { sharded_norm(comm, &[gradients], params.numel())? };
        let scale = clip_scale(norm, clip);
        model.gathered.update(|values| optimizer.update(values, gradients, lr, scale))?;
        let end = Instant::now();
        for unit in 0..model.gathered.units.units.len() {
            model.gathered.note(Event { unit, what: What::Step, start, end });
        }
        Ok(norm)
    }

    fn open(&mut self) -> Result<()> {
        self.model.gathered.open_aside()
    }

    fn close(&mut self) {
        self.model.gathered.close();
    }

    fn each(&mut self, each: &mut Each) -> Result<()> {
        self.model.gathered.each(each)
    }

    fn volumes(&self) -> Volumes {
        let reduced = self.params.numel() * self.model.step().passes;
        Volumes { gathered: self.model.gathered.numel_a_step(), reduced, bytes_each: size_of::<T>() }
    }

    fn held(&self) -> Held {
        let step = self.model.step();
        let (gathered, peak_gathered) = self.model.gathered.bytes();
        let (parameters, parameters_file) = self.model.gathered.share_bytes();
        let whole = size_of::<f32>() * self.params.values().capacity();
        Held {
            parameters,
            gradients: size_of::<T>() * step.share.capacity(),
            optimizer: self.optimizer.bytes(),
            parameters_file,
            optimizer_file: self.optimizer.file_bytes(),
            buffers: gathered + self.model.bytes(&step) + whole,
            // At most: the two need not be at their highest at the same time.
            peak_buffers: peak_gathered + step.peak_bytes,
        }
    }

    fn events(&mut self) -> Vec<Event> {
        self.model.gathered.take_events()
    }

    fn units(&self) -> Vec<String> {
        self.model.gathered.units.units.iter().map(|unit| unit.name.clone()).collect()
    }
}

impl<T: Stored> Drop for Sharded<T> {
    fn drop(&mut self) {
        self.params.set_hook(None);
        self.params.set_elsewhere(None);
    }
}
