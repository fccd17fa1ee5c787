//! Stage 3's parameters: divided at rest, whole while they are used.
//!
//! Nobody tells when a unit is needed: a layer asks its handle for the weight, the handle asks here, and the unit is gathered.
//! When a layer of another unit asks, the one before is over, and dropped: so one unit is whole at a time, in the forward
//! pass and again, in reverse, in the backward pass. The first step writes down in which order units are asked for; from
//! then on the next ones are gathered while this one computes, as many as `prefetch_bucket` holds.
//!
//! A gather is a collective, so all ranks must ask in the same order. They do in a training step. Outside of one, a rank may
//! be alone with its wish, and is told so.

use super::units::{Unit, Units};
use super::{Each, Event, What};
use crate::comm::Comm;
use crate::optim::{Store, Windowed};
use crate::parallel::queue::Queue;
use crate::tensor::{Spec, Stored};
use anyhow::{Result, ensure};
use candle_core::Error;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// This rank's share of the parameters, and what is gathered of the rest.
pub(super) struct Gathered<T> {
    comm: Comm,
    pub units: Arc<Units>,
    prefetch_bucket: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// This rank's parts of all units.
    values: Store<T>,
    /// Whether layers may ask.
    open: bool,
    /// The pass that layers ask for: forward or backward.
    pass: What,
    /// Units that are whole here.
    here: Vec<Option<Here>>,
    /// The one that is in use.
    current: Option<usize>,
    /// Units on their way.
    coming: Queue<usize, T>,
    order: Order,
    /// A training step's order, while something else goes on.
    aside: Option<Order>,
    events: Vec<Event>,
    peak_bytes: usize,
}

struct Here {
    whole: Arc<Vec<f32>>,
    since: Instant,
    /// The pass that it is here for.
    pass: What,
}

/// In which order a step asks for units.
#[derive(Default)]
struct Order {
    units: Vec<usize>,
    /// Whether a whole step is written down.
    known: bool,
    /// How many have been asked for in this step, and how many gathers were started.
    asked: usize,
    started: usize,
}

impl<T: Stored> Gathered<T> {
    /// `values` are this rank's parts.
    pub fn new(comm: &Comm, units: Arc<Units>, values: Store<T>, prefetch_bucket: usize) -> Gathered<T> {
        let state = State {
            values,
            open: false,
            pass: What::Forward,
            here: units.units.iter().map(|_| None).collect(),
            current: None,
            coming: Queue::default(),
            order: Order::default(),
            aside: None,
            events: Vec::new(),
            peak_bytes: 0,
        };
        Gathered { comm: comm.clone(), units, prefetch_bucket, state: Mutex::new(state) }
    }

    /// Lets layers ask. Persistent parameters are gathered once a step, here: the optimizer has changed them.
    pub fn open(&self) -> Result<()> {
        let mut state = self.state();
        (state.open, state.pass, state.order.asked, state.order.started) = (true, What::Forward, 0, 0);
        for number in (0..self.units.units.len()).filter(|&number| self.units.units[number].persistent) {
            self.start(&mut state, number)?;
            self.arrive(&mut state, number)?;
        }
        Ok(())
    }

    /// Lets layers ask for passes that are not a training step's: what that is known to ask for stays known.
    pub fn open_aside(&self) -> Result<()> {
        let mut state = self.state();
        state.aside = Some(std::mem::take(&mut state.order));
        drop(state);
        self.open()
    }

    /// A backward pass begins. What is here for the forward pass serves it, too.
    pub fn turn_back(&self) {
        let (mut state, now) = (self.state(), Instant::now());
        state.pass = What::Backward;
        let State { here, events, .. } = &mut *state;
        for (unit, here) in here.iter_mut().enumerate() {
            let Some(here) = here else { continue };
            events.push(Event { unit, what: here.pass, start: here.since, end: now });
            (here.since, here.pass) = (now, What::Backward);
        }
    }

    /// It has completed all gradients: who asks next belongs to a forward pass.
    pub fn turn_forward(&self) {
        self.state().pass = What::Forward;
    }

    /// The step's passes are over: nothing is whole here any more.
    pub fn close(&self) {
        let mut state = self.state();
        state.open = false;
        (0..self.units.units.len()).for_each(|number| state.drop_unit(number));
        state.current = None;
        // What was fetched for a pass that took another way: the others do their part of it without this rank.
        state.coming = Queue::default();
        let Order { units, known, asked, .. } = &mut state.order;
        units.truncate(*asked);
        *known = true;
        if let Some(order) = state.aside.take() {
            state.order = order;
        }
    }

    /// A parameter's value, for a layer that is about to use it.
    pub fn value(&self, spec: &Spec) -> candle_core::Result<(Arc<Vec<f32>>, Range<usize>)> {
        let place = self.units.place(spec);
        let mut state = self.state();
        if !state.open {
            return Err(self.not_here(spec));
        }
        if state.current != Some(place.unit) && !self.units.units[place.unit].persistent {
            self.enter(&mut state, place.unit).map_err(Error::wrap)?;
        }
        let Some(Here { whole, .. }) = &state.here[place.unit] else { return Err(self.not_here(spec)) };
        Ok((whole.clone(), place.start..place.start + spec.numel()))
    }

    // ANCHOR: enter
    /// A layer asks for the first parameter of a unit: the unit before is over.
    fn enter(&self, state: &mut State<T>, number: usize) -> Result<()> {
        if let Some(before) = state.current.replace(number) {
            state.drop_unit(before);
        }
        state.order.note(number);
        if !state.coming.all().any(|&coming| coming == number) {
            self.start(state, number)?;
        }
        self.arrive(state, number)?;
        self.prefetch(state)
    }

    /// Starts to gather what will be asked for next, so that it is here by then.
    fn prefetch(&self, state: &mut State<T>) -> Result<()> {
        let size = |&number: &usize| self.units.units[number].numel;
        state.order.started = state.order.started.max(state.order.asked);
        while let Some(next) = state.order.known.then(|| state.order.units.get(state.order.started).copied()).flatten()
        {
            let coming: usize = state.coming.all().map(size).sum();
            let is_here = state.here[next].is_some() || state.coming.all().any(|&coming| coming == next);
            if is_here || coming + size(&next) > self.prefetch_bucket {
                break;
            }
            self.start(state, next)?;
            state.order.started += 1;
        }
        Ok(())
    }
    // ANCHOR_END: enter

    /// Brings this rank's part of a unit into an all-gather.
    fn start(&self, state: &mut State<T>, number: usize) -> Result<()> {
        let Unit { part, start, .. } = self.units.units[number];
        let mut all = vec![T::zeroed(); part * self.units.ranks];
        all[self.comm.rank() * part..][..part].copy_from_slice(&state.values.window(start..start + part)?);
        state.coming.push(number, self.comm.start_all_gather(all)?);
        self.note_bytes(state);
        Ok(())
    }

    /// Waits for a unit, and puts it together.
    fn arrive(&self, state: &mut State<T>, number: usize) -> Result<()> {
        let Some((_, parts, seen)) = state.coming.find(|&coming| coming == number)? else { return Ok(()) };
        let event = |what, start, end| Event { unit: number, what, start, end };
        state.events.push(event(What::Gather, seen.start, seen.end));
        state.events.push(event(What::Wait, seen.waited.0, seen.waited.1));
        let whole = Arc::new(self.units.join(&self.units.units[number], &parts));
        state.here[number] = Some(Here { whole, since: Instant::now(), pass: state.pass });
        self.note_bytes(state);
        Ok(())
    }

    /// Calls `each` with every parameter, gathered unit by unit. All ranks must, between steps.
    pub fn each(&self, each: &mut Each) -> Result<()> {
        let mut state = self.state();
        ensure!(!state.open, "Zero::whole and Zero::each are for between steps: call them after Zero::finish");
        for (number, unit) in self.units.units.iter().enumerate() {
            self.start(&mut state, number)?;
            self.arrive(&mut state, number)?;
            if let Some(Here { whole, .. }) = state.here[number].take() {
                for spec in &unit.specs {
                    each(spec, &whole[self.units.place(spec).start..][..spec.numel()]);
                }
            }
        }
        state.events.clear();
        Ok(())
    }

    /// Elements of all parameters that the last step gathered, each as often as it was.
    pub fn numel_a_step(&self) -> usize {
        let units = &self.units.units;
        let persistent: usize = units.iter().filter(|unit| unit.persistent).map(|unit| unit.numel).sum();
        self.state().order.units.iter().map(|&number| units[number].numel).sum::<usize>() + persistent
    }

    /// Lets `update` change this rank's share.
    pub fn update<R>(&self, update: impl FnOnce(&mut Store<T>) -> R) -> R {
        update(&mut self.state().values)
    }

    pub fn note(&self, event: Event) {
        self.state().events.push(event);
    }

    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.state().events)
    }

    /// Bytes of this rank's share, in memory and in a file.
    pub fn share_bytes(&self) -> (usize, usize) {
        let state = self.state();
        (state.values.bytes(), state.values.file_bytes())
    }

    /// Bytes of what is gathered now, and the most that this ever was.
    pub fn bytes(&self) -> (usize, usize) {
        let state = self.state();
        (self.gathered_bytes(&state), state.peak_bytes)
    }

    fn gathered_bytes(&self, state: &State<T>) -> usize {
        let here: usize = state.here.iter().flatten().map(|here| here.whole.capacity()).sum();
        let coming: usize = state.coming.all().map(|&number| self.units.units[number].part * self.units.ranks).sum();
        size_of::<f32>() * here + size_of::<T>() * coming
    }

    fn note_bytes(&self, state: &mut State<T>) {
        state.peak_bytes = state.peak_bytes.max(self.gathered_bytes(state));
    }

    /// Without candle's backtrace, which a notebook's kernel asks for: what is wrong is where the parameter is.
    fn not_here(&self, spec: &Spec) -> Error {
        let (sharded, name, shape) = (self.units.place(spec).sharded, &spec.name, &spec.shape);
        let mut text =
            format!("parameter {name} {shape:?} is divided among {} ranks, and not gathered now", sharded.ranks);
        for rank in 0..sharded.ranks.min(8) {
            let held = sharded.range(rank);
            text += &match held.len() {
                0 => format!("\n  rank {rank}  holds nothing of it"),
                n => format!("\n  rank {rank}  holds {n} elements: {} to {}", held.start, held.end - 1),
            };
        }
        if sharded.ranks > 8 {
            text += "\n  …";
        }
        text += "\nhelp: use it within a step, between Zero::begin and Zero::finish, or within Zero::passes, where units are \
                 gathered as layers ask for them; or let all ranks gather everything for a moment with Zero::whole";
        Error::Msg(text)
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn drop_unit(&mut self, number: usize) {
        if let Some(Here { since, pass, .. }) = self.here[number].take() {
            self.events.push(Event { unit: number, what: pass, start: since, end: Instant::now() });
        }
    }
}

impl Order {
    /// Writes down a unit; what was known before of a step that goes another way is forgotten.
    fn note(&mut self, number: usize) {
        if self.units.get(self.asked) != Some(&number) {
            self.units.truncate(self.asked);
            self.units.push(number);
            self.known = false;
        }
        self.asked += 1;
    }
}
