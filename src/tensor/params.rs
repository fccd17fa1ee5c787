//! Where a model's weights live, and how a layer reaches them.
//!
//! All parameters of a model lie one after the other in one flat buffer, group by group ([`Params::groups`]) and within a
//! group in the order in which the model defines them; their gradients lie in a second one of the same layout. A layer holds
//! a [`Param`], a handle, and asks it for the weight when it runs, forward and backward; its backward pass adds the weight's
//! gradient straight into the flat buffer and the handle then tells a hook that it is complete. Everything that parallelism
//! does hangs on these points: data parallelism sums flat buckets when the hook says so, ZeRO can gather a weight behind the handle and drop it again.
//!
//! The buffers hold f32, or bf16 in half the memory: a handle then widens what it hands out, and rounds what it adds. Where
//! a rank does not hold all, the buffers are empty, and who has divided them answers in their place ([`Elsewhere`]).
//!
//! A model is described first and allocated later: [`Params::declare`] only notes names and shapes.

use super::profile;
use super::random::Init;
use super::stored::{Stored, widen};
use candle_core::{Result, bail};
use half::bf16;
use std::collections::HashSet;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A parameter's description.
#[derive(Debug)]
pub struct Spec {
    /// Unique within the model, such as `blocks.0.qkv.weight`.
    pub name: String,
    pub shape: Vec<usize>,
    pub init: Init,
    /// Position in the model's order.
    pub index: usize,
    /// First element's place in the flat buffers, while parameters are declared: what comes into the group before it moves it.
    start: AtomicUsize,
    /// The parameter that the initial values are taken from, and the first of its elements: itself, or one of which this is a
    /// tile.
    origin: (String, usize),
    /// In how many places of the model the parameter is used; its gradient is complete after so many contributions.
    uses: AtomicUsize,
    contributions: AtomicUsize,
}

impl Spec {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The parameter's place in the flat buffers.
    pub fn range(&self) -> Range<usize> {
        let start = self.start.load(Relaxed);
        start..start + self.numel()
    }

    /// Whether weight decay applies: to matrices, not to gains and biases.
    pub fn decays(&self) -> bool {
        self.shape.len() == 2
    }

    /// Writes what these of the parameter's elements begin with under `seed`: the same numbers, however it is cut.
    pub fn begin(&self, seed: u64, elements: Range<usize>, out: &mut [f32]) {
        let (name, first) = &self.origin;
        self.init.fill(seed, name, first + elements.start, out);
    }
}

/// Parameters that the optimizer treats alike, as PyTorch's parameter groups: a stretch of the flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub range: Range<usize>,
    /// Whether weight decay applies.
    pub decays: bool,
}

/// Called during the backward pass, when a parameter's gradient is complete.
pub type Hook = Box<dyn Fn(&Params, &Spec) -> Result<()> + Send + Sync>;

/// Who has what the flat buffers have not, because it is divided among ranks.
pub trait Elsewhere: Send + Sync {
    /// A parameter's value, asked for by a layer that is about to use it: its elements are these of the vector.
    fn value(&self, spec: &Spec) -> Result<(Arc<Vec<f32>>, Range<usize>)>;

    /// Lets `add` add a contribution to a parameter's gradient, and calls it once.
    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> Result<()>;
}

/// A model's parameters and their gradients.
#[derive(Default)]
pub struct Params {
    specs: RwLock<Vec<Arc<Spec>>>,
    names: Mutex<HashSet<String>>,
    pub(super) values: RwLock<Vec<f32>>,
    pub(super) gradients: Mutex<Vec<f32>>,
    /// The same of a model that is stored in bf16.
    pub(super) half_values: RwLock<Vec<bf16>>,
    pub(super) half_gradients: Mutex<Vec<bf16>>,
    hook: RwLock<Option<Hook>>,
    elsewhere: RwLock<Option<Arc<dyn Elsewhere>>>,
}

impl Params {
    /// An empty model.
    pub fn new() -> Arc<Params> {
        Arc::default()
    }

    /// Notes a parameter; nothing is allocated yet.
    pub fn declare(self: &Arc<Params>, name: impl Into<String>, shape: &[usize], init: Init) -> Result<Param> {
        let name = name.into();
        self.declare_from((name.clone(), 0), name, shape, init)
    }

    /// Notes tile `tile` of `tiles` of a matrix [rows, columns] as a parameter of its own: its share of the rows, which begin as
    /// those of the whole matrix would. `tiles` must divide the rows.
    pub fn declare_tile(
        self: &Arc<Params>,
        matrix: &str,
        [rows, columns]: [usize; 2],
        (tile, tiles): (usize, usize),
        init: Init,
    ) -> Result<Param> {
        let rows = rows / tiles;
        let origin = (matrix.to_string(), tile * rows * columns);
        self.declare_from(origin, format!("{matrix}.tile{tile}"), &[rows, columns], init)
    }

    fn declare_from(
        self: &Arc<Params>,
        origin: (String, usize),
        name: String,
        shape: &[usize],
        init: Init,
    ) -> Result<Param> {
        let mut specs = self.specs.write().unwrap_or_else(PoisonError::into_inner);
        if !self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
            bail!("two parameters are named {name}; names must be unique");
        }
        let spec = Arc::new(Spec {
            name,
            shape: shape.to_vec(),
            init,
            index: specs.len(),
            start: AtomicUsize::new(0),
            origin,
            uses: AtomicUsize::new(1),
            contributions: AtomicUsize::new(0),
        });
        // At its group's end: what decays lies before what does not.
        let (before, after): (Vec<_>, Vec<_>) = specs.iter().partition(|other| other.decays() || !spec.decays());
        spec.start.store(before.iter().map(|other| other.numel()).sum(), Relaxed);
        for other in after {
            other.start.fetch_add(spec.numel(), Relaxed);
        }
        specs.push(spec.clone());
        Ok(Param { spec, home: self.clone() })
    }

    /// The parameters in the model's order.
    pub fn specs(&self) -> Vec<Arc<Spec>> {
        self.specs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of elements of all parameters together.
    pub fn numel(&self) -> usize {
        self.specs().iter().map(|spec| spec.numel()).sum()
    }

    /// The parameter groups that the model has, end to end: what weight decay applies to, then the rest.
    pub fn groups(&self) -> Vec<Group> {
        let (specs, numel) = (self.specs(), self.numel());
        let decaying = specs.iter().filter(|spec| spec.decays()).map(|spec| spec.numel()).sum();
        let both = [(0..decaying, true), (decaying..numel, false)];
        let has_any = |decays| specs.iter().any(|spec| spec.decays() == decays);
        both.into_iter().filter(|&(_, decays)| has_any(decays)).map(|(range, decays)| Group { range, decays }).collect()
    }

    /// Makes room for values and gradients, and initialises the values: functions of (seed, name, element).
    pub fn allocate(&self, seed: u64) {
        let mut values = vec![0.0; self.numel()];
        for spec in self.specs() {
            spec.begin(seed, 0..spec.numel(), &mut values[spec.range()]);
        }
        *self.gradients() = vec![0.0; values.len()];
        *self.values_mut() = values;
    }

    /// All values, in the flat layout. Empty while they are stored in bf16 or divided among ranks.
    pub fn values(&self) -> RwLockReadGuard<'_, Vec<f32>> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// All values, to be changed: by the optimizer, a broadcast, a checkpoint.
    pub fn values_mut(&self) -> RwLockWriteGuard<'_, Vec<f32>> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All values; an error if this rank does not hold them whole, and in f32.
    pub fn whole(&self) -> Result<RwLockReadGuard<'_, Vec<f32>>> {
        let values = self.values();
        if values.len() < self.numel() {
            bail!(
                "the parameters are not here as one f32 vector: they were not allocated, or ZeRO has divided them\n\
                 help: all ranks together can gather them for a moment: see Zero::whole"
            );
        }
        Ok(values)
    }

    /// All gradients, in the flat layout. Empty while they are stored in bf16 or divided among ranks.
    pub fn gradients(&self) -> MutexGuard<'_, Vec<f32>> {
        self.gradients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All values in the type that they are stored in, to be changed.
    pub fn stored_values<T: Stored>(&self) -> RwLockWriteGuard<'_, Vec<T>> {
        T::values(self).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All gradients in the type that they are stored in.
    pub fn stored_gradients<T: Stored>(&self) -> MutexGuard<'_, Vec<T>> {
        T::gradients(self).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names who has what the flat buffers have not.
    pub fn set_elsewhere(&self, elsewhere: Option<Arc<dyn Elsewhere>>) {
        *self.elsewhere.write().unwrap_or_else(PoisonError::into_inner) = elsewhere;
    }

    fn elsewhere(&self, spec: &Spec) -> Result<Arc<dyn Elsewhere>> {
        match &*self.elsewhere.read().unwrap_or_else(PoisonError::into_inner) {
            Some(elsewhere) => Ok(elsewhere.clone()),
            None => bail!("parameter {} has no values yet: call Params::allocate first", spec.name),
        }
    }

    /// To be called before the first micro-batch of a step: backward passes only ever add.
    pub fn zero_gradients(&self) {
        self.gradients().fill(0.0);
        self.stored_gradients::<bf16>().fill(bf16::ZERO);
    }

    /// Sets what happens when a parameter's gradient is complete; the last hook set counts.
    pub fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.write().unwrap_or_else(PoisonError::into_inner) = hook;
    }
}

/// A layer's handle on one parameter.
pub struct Param {
    spec: Arc<Spec>,
    home: Arc<Params>,
}

impl Param {
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The handle for a second place that uses the same parameter (tied weights): the gradient is complete when both
    /// places have contributed.
    pub fn tie(&self) -> Param {
        self.spec.uses.fetch_add(1, Relaxed);
        self.handle()
    }

    /// The same use in another hand: the operation that the layer puts into the graph.
    pub(crate) fn handle(&self) -> Param {
        Param { spec: self.spec.clone(), home: self.home.clone() }
    }

    /// The weight, for as long as the guard lives.
    pub fn value(&self) -> Result<Value<'_>> {
        let range = self.spec.range();
        let all = self.home.values();
        if all.len() >= range.end {
            return Ok(Value { all: All::Held(all), range });
        }
        let all = self.home.half_values.read().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= range.end {
            let mut wide = vec![0.0; range.len()];
            widen(&all[range.clone()], &mut wide);
            return Ok(Value { all: All::Widened(wide), range: 0..range.len() });
        }
        drop(all);
        let (all, range) = profile::elsewhere(|| self.home.elsewhere(&self.spec)?.value(&self.spec))?;
        Ok(Value { all: All::Gathered(all), range })
    }

    /// Lets `add` add this use's contribution to the gradient, and calls the hook if it was the last one.
    pub fn add_gradient(&self, add: impl FnOnce(&mut [f32])) -> Result<()> {
        self.add_where_it_is(add)?;
        if self.spec.contributions.fetch_add(1, Relaxed) + 1 == self.spec.uses.load(Relaxed) {
            self.spec.contributions.store(0, Relaxed);
            if let Some(hook) = &*self.home.hook.read().unwrap_or_else(PoisonError::into_inner) {
                profile::elsewhere(|| hook(&self.home, &self.spec))?;
            }
        }
        Ok(())
    }

    fn add_where_it_is(&self, add: impl FnOnce(&mut [f32])) -> Result<()> {
        let range = self.spec.range();
        let mut all = self.home.gradients();
        if all.len() >= range.end {
            add(&mut all[range]);
            return Ok(());
        }
        drop(all);
        let mut all = self.home.stored_gradients::<bf16>();
        if all.len() >= range.end {
            bf16::change(&mut all[range], add);
            return Ok(());
        }
        drop(all);
        let mut add = Some(add);
        self.home
            .elsewhere(&self.spec)?
            .add_gradient(&self.spec, &mut |sum| add.take().into_iter().for_each(|add| add(sum)))
    }
}

/// A weight in use: a slice of the parameter's elements, row-major.
pub struct Value<'a> {
    all: All<'a>,
    range: Range<usize>,
}

enum All<'a> {
    Held(RwLockReadGuard<'a, Vec<f32>>),
    Widened(Vec<f32>),
    Gathered(Arc<Vec<f32>>),
}

impl Deref for Value<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        let all: &[f32] = match &self.all {
            All::Held(all) => all,
            All::Widened(all) => all,
            All::Gathered(all) => all,
        };
        &all[self.range.clone()]
    }
}
