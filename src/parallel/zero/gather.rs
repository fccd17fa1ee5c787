//! Stage 3's parameters: sharded at rest, whole while a layer uses them.
//!
//! When a layer asks its handle for a weight, the handle asks here, and the weight's whole unit is
//! gathered. When a layer of a different unit asks, the previous unit is freed. So one unit at a
//! time is whole: in the forward pass, and again in reverse in the backward pass. The first
//! training step records the order in which units are asked for. Later steps gather the next units
//! while the current unit computes, up to `prefetch_bucket` elements.
//!
//! A gather is a collective, so all ranks must ask in the same order. They do during a training
//! step. Outside of steps and [`Zero::passes`](super::Zero::passes), a single rank may ask; it then
//! gets an error.

use super::engine::Each;
use super::units::{Unit, Units, Wrap};
use super::{Event, EventKind};
use crate::comm::Comm;
use crate::optim::{InitialValues, StateStore, StoredBytes, Windowed, initial_store};
use crate::parallel::Replicas;
use crate::parallel::queue::Queue;
use crate::tensor::{Params, ShardedValues, Spec, Stored};
use anyhow::{Result, ensure};
use candle_core::Error;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Gathers units of parameters, and frees them. Values are stored as `T`.
pub struct Gatherer<T> {
    replicas: Replicas,
    pub(super) units: Arc<Units>,
    prefetch_bucket: usize,
    state: Mutex<GatherState<T>>,
}

pub(super) struct GatherState<T> {
    /// This rank's shards of all units.
    pub values: StateStore<T>,
    /// Whether layers may ask.
    open: bool,
    /// Whether the passes belong to a training step, whose order is recorded.
    training: bool,
    /// The current pass: forward or backward.
    pass: EventKind,
    /// The units that are whole on this rank.
    whole: Vec<Option<WholeUnit>>,
    /// The unit in use.
    current: Option<usize>,
    in_flight: Queue<usize, T>,
    order: RequestOrder,
    pub events: Vec<Event>,
    peak_bytes: usize,
}

struct WholeUnit {
    values: Arc<Vec<f32>>,
    since: Instant,
    /// The pass that uses the unit.
    pass: EventKind,
}

/// The order in which a training step asks for units.
#[derive(Default)]
struct RequestOrder {
    units: Vec<usize>,
    /// Whether a whole step is recorded.
    known: bool,
    /// The number of units that this step has asked for so far.
    asked: usize,
    /// The number of recorded units whose gathers have been started.
    started: usize,
}

impl<T: Stored> Gatherer<T> {
    /// Shards parameters that are only declared, for passes without training: nothing is gathered
    /// ahead. `begin` writes the values of each rank's own shard. Parameters of up to `threshold`
    /// elements stay whole from [`Gatherer::open`] to [`Gatherer::close`].
    ///
    /// # Errors
    /// If this rank's shard cannot be allocated.
    pub fn begin_with(
        params: &Params,
        comm: &Comm,
        wrap: Wrap,
        threshold: usize,
        begin: InitialValues,
    ) -> Result<Gatherer<T>> {
        let units = Arc::new(Units::new(params.specs(), |_| comm.size(), wrap, threshold, None));
        let [fragments, _] = units.fragments(|_| comm.rank());
        let values = initial_store::<T>(&fragments, begin, None)?;
        Ok(Gatherer::new(&comm.into(), units, values, 0))
    }

    /// `values` are this rank's shards.
    pub(super) fn new(
        replicas: &Replicas,
        units: Arc<Units>,
        values: StateStore<T>,
        prefetch_bucket: usize,
    ) -> Gatherer<T> {
        let state = GatherState {
            values,
            open: false,
            training: false,
            pass: EventKind::Forward,
            whole: units.units.iter().map(|_| None).collect(),
            current: None,
            in_flight: Queue::default(),
            order: RequestOrder::default(),
            events: Vec::new(),
            peak_bytes: 0,
        };
        Gatherer {
            replicas: replicas.clone(),
            units,
            prefetch_bucket,
            state: Mutex::new(state),
        }
    }

    /// Lets layers ask: in a training step, or in other passes such as an evaluation. Persistent
    /// parameters are gathered here, because the optimizer has changed them since. All ranks call
    /// it.
    ///
    /// # Errors
    /// If the gather fails.
    pub fn open(&self, training: bool) -> Result<()> {
        let mut state = self.state();
        state.open = true;
        state.training = training;
        state.pass = EventKind::Forward;
        state.order.asked = 0;
        state.order.started = 0;
        for number in
            (0..self.units.units.len()).filter(|&number| self.units.units[number].persistent)
        {
            self.start(&mut state, number)?;
            self.arrive(&mut state, number)?;
        }
        Ok(())
    }

    /// Begins a backward pass, which also uses the units that are still whole.
    pub(super) fn start_backward(&self) {
        let mut state = self.state();
        let now = Instant::now();
        state.pass = EventKind::Backward;
        let GatherState { whole, events, .. } = &mut *state;
        for (unit, whole) in whole.iter_mut().enumerate() {
            let Some(whole) = whole else { continue };
            events.push(Event { unit, kind: whole.pass, start: whole.since, end: now });
            whole.since = now;
            whole.pass = EventKind::Backward;
        }
    }

    /// Ends a backward pass: later requests belong to a forward pass.
    pub(super) fn start_forward(&self) {
        self.state().pass = EventKind::Forward;
    }

    /// Ends the passes, and frees all units.
    pub fn close(&self) {
        let mut state = self.state();
        state.open = false;
        for number in 0..self.units.units.len() {
            state.free(number);
        }
        state.current = None;
        // A pass may have taken a different way than the prefetch expected. The other ranks
        // complete those gathers alone.
        state.in_flight = Queue::default();
        if state.training {
            let RequestOrder { units, known, asked, .. } = &mut state.order;
            units.truncate(*asked);
            *known = true;
        }
    }

    // ANCHOR: enter
    /// A layer asks for the first parameter of a unit, so the previous unit is no longer needed.
    fn enter(&self, state: &mut GatherState<T>, number: usize) -> Result<()> {
        if let Some(previous) = state.current.replace(number) {
            state.free(previous);
        }
        if state.training {
            state.order.record(number);
        }
        if !state.in_flight.notes().any(|&unit| unit == number) {
            self.start(state, number)?;
        }
        self.arrive(state, number)?;
        if state.training && state.order.known {
            self.prefetch(state)
        } else {
            Ok(())
        }
    }
    // ANCHOR_END: enter

    /// Starts to gather the next units, so that they have arrived when layers ask for them.
    fn prefetch(&self, state: &mut GatherState<T>) -> Result<()> {
        let size = |&number: &usize| self.units.units[number].numel;
        state.order.started = state.order.started.max(state.order.asked);
        while let Some(&next) = state.order.units.get(state.order.started) {
            let in_flight: usize = state.in_flight.notes().map(size).sum();
            let has_started =
                state.whole[next].is_some() || state.in_flight.notes().any(|&unit| unit == next);
            if has_started || in_flight + size(&next) > self.prefetch_bucket {
                break;
            }
            self.start(state, next)?;
            state.order.started += 1;
        }
        Ok(())
    }

    /// Starts to gather a unit.
    fn start(&self, state: &mut GatherState<T>, number: usize) -> Result<()> {
        let unit = &self.units.units[number];
        let comm = self.replicas.of(unit.expert);
        let mut all = vec![T::zeroed(); unit.shard * unit.ranks];
        let mut mine = comm.rank() * unit.shard;
        for part in [unit.start..unit.start + unit.cut, unit.owned.clone()] {
            all[mine..mine + part.len()].copy_from_slice(&state.values.window(part.clone())?);
            mine += part.len();
        }
        state.in_flight.push(number, all.len(), comm.start_all_gather(all)?);
        state.note_bytes();
        Ok(())
    }

    /// Waits for a unit, and joins its shards.
    fn arrive(&self, state: &mut GatherState<T>, number: usize) -> Result<()> {
        let Some((_, shards, seen)) = state.in_flight.find(|&unit| unit == number)? else {
            return Ok(());
        };
        let event = |kind, start, end| Event { unit: number, kind, start, end };
        state.events.push(event(EventKind::Gather, seen.start, seen.end));
        state.events.push(event(EventKind::Wait, seen.waited.0, seen.waited.1));
        let values = Arc::new(self.units.join(&self.units.units[number], &shards));
        state.whole[number] = Some(WholeUnit { values, since: Instant::now(), pass: state.pass });
        state.note_bytes();
        Ok(())
    }

    /// Calls `each` with every parameter, gathered unit by unit. All ranks call it, between steps.
    pub(super) fn each(&self, each: &mut Each) -> Result<()> {
        let mut state = self.state();
        ensure!(
            !state.open,
            "Zero::whole and Zero::each are for between steps: call them after Zero::finish"
        );
        for (number, unit) in self.units.units.iter().enumerate() {
            self.start(&mut state, number)?;
            self.arrive(&mut state, number)?;
            if let Some(WholeUnit { values, .. }) = state.whole[number].take() {
                for spec in &unit.specs {
                    each(spec, &values[self.units.offsets(spec).in_unit..][..spec.numel()]);
                }
            }
        }
        state.events.clear();
        Ok(())
    }

    /// Elements of all experts, or of all else, that the last step gathered, each counted as often
    /// as it was gathered.
    pub(super) fn gathered_per_step(&self, expert: bool) -> usize {
        let units = &self.units.units;
        let persistent = units.iter().filter(|unit| unit.persistent);
        let state = self.state();
        let asked = state.order.units.iter().map(|&number| &units[number]);
        let all = persistent.chain(asked).filter(|unit| unit.expert == expert);
        all.map(Unit::gathered).sum()
    }

    /// Bytes of this rank's shards.
    pub fn shard_bytes(&self) -> StoredBytes {
        self.state().values.bytes()
    }

    /// Bytes of the units that are whole or in flight, now and at their peak.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let state = self.state();
        (state.bytes(), state.peak_bytes)
    }

    /// An error without candle's backtrace, which a notebook's kernel asks for. The place in the
    /// code is not the problem.
    fn not_here(&self, spec: &Spec) -> Error {
        let offsets = self.units.offsets(spec);
        let sharded = offsets.sharded;
        let name = &spec.name;
        let shape = &spec.shape;
        let mut text = format!(
            "parameter {name} {shape:?} is sharded among {} ranks, and not gathered now",
            sharded.ranks
        );
        for rank in 0..sharded.ranks.min(8) {
            let held = offsets.range(rank);
            text += &match held.len() {
                0 => format!("\n  rank {rank}  holds no element of it"),
                n => format!(
                    "\n  rank {rank}  holds {n} elements: {} to {}",
                    held.start,
                    held.end - 1
                ),
            };
        }
        if sharded.ranks > 8 {
            text += "\n  …";
        }
        text += "\nhelp: use it within a step, between Zero::begin and Zero::finish, or within Zero::passes, where layers' \
                 requests gather units; or let all ranks gather all parameters temporarily with Zero::whole";
        Error::Msg(text)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, GatherState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Layers reach their parameters here, through their handles.
impl<T: Stored> ShardedValues for Gatherer<T> {
    fn value(&self, spec: &Spec) -> candle_core::Result<(Arc<Vec<f32>>, Range<usize>)> {
        let offsets = self.units.offsets(spec);
        let mut state = self.state();
        if !state.open {
            return Err(self.not_here(spec));
        }
        if state.current != Some(offsets.unit) && !self.units.units[offsets.unit].persistent {
            self.enter(&mut state, offsets.unit).map_err(Error::wrap)?;
        }
        let Some(unit) = &state.whole[offsets.unit] else {
            return Err(self.not_here(spec));
        };
        Ok((unit.values.clone(), offsets.in_unit..offsets.in_unit + spec.numel()))
    }
}

impl<T: Stored> GatherState<T> {
    fn free(&mut self, number: usize) {
        if let Some(WholeUnit { since, pass, .. }) = self.whole[number].take() {
            self.events
                .push(Event { unit: number, kind: pass, start: since, end: Instant::now() });
        }
    }

    fn bytes(&self) -> usize {
        let whole: usize = self.whole.iter().flatten().map(|unit| unit.values.capacity()).sum();
        size_of::<f32>() * whole + size_of::<T>() * self.in_flight.elements()
    }

    fn note_bytes(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.bytes());
    }
}

impl RequestOrder {
    /// Records a unit. If this step takes a different way than the recorded one, forgets the rest
    /// of the record.
    fn record(&mut self, number: usize) {
        if self.units.get(self.asked) != Some(&number) {
            self.units.truncate(self.asked);
            self.units.push(number);
            self.known = false;
        }
        self.asked += 1;
    }
}
