//! Where a model's weights live, and how a layer reaches them.
//!
//! All parameters of a model lie one after the other in one flat buffer, group by group ([`Layout::groups`]) and within a
//! group in the order in which the model declares them; their gradients lie in a second buffer of the same layout. A layer
//! holds a [`Param`], a handle, and asks it for the weight when it runs, forward and backward; its backward pass adds the
//! weight's gradient straight into the flat buffer, and the handle then calls the hooks. Everything that parallelism does
//! hangs on these points: data parallelism sums flat buckets when a hook is called, ZeRO gathers a weight behind the handle
//! and frees it again.
//!
//! The buffers hold f32, or bf16 in half the memory: a handle then widens what it returns, and rounds what it adds. Where
//! values or gradients are sharded among ranks, there is no buffer, and a [`Gather`] or a [`Collect`] stands in its place.
//!
//! A model is declared first and allocated later. The layout is built once, when it is first asked for.

use super::profile;
use super::random::Init;
use super::stored::{Numbers, Stored, widen};
use super::whole::{Copies, Cut, Whole};
use candle_core::{Result, bail};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A parameter's description.
#[derive(Debug)]
pub struct Spec {
    /// Unique within the model, such as `blocks.0.qkv.weight`.
    pub name: String,
    /// The shape of the part that is here: the whole's, unless it is cut.
    pub shape: Vec<usize>,
    pub whole: Whole,
    pub cut: Cut,
    pub copies: Copies,
    /// Position in the order of declaration.
    pub index: usize,
    /// Offset of the first element in the flat buffers.
    start: usize,
}

impl Spec {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The parameter's offsets in the flat buffers.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.numel()
    }

    /// Whether weight decay applies: to matrices, not to gains and biases.
    pub fn decays(&self) -> bool {
        self.whole.shape.len() == 2
    }

    /// Calls `each` with every run of these elements of the parameter that lie next to each other in its whole: which they
    /// are, and the first one's place in the whole.
    pub fn runs(&self, elements: Range<usize>, each: impl FnMut(Range<usize>, usize)) {
        self.cut.runs(&self.whole, elements, each);
    }

    /// Writes the initial values of these elements under `seed`: the same numbers, however the whole is cut.
    pub fn initial(&self, seed: u64, elements: Range<usize>, out: &mut [f32]) {
        let (from, Whole { name, init, .. }) = (elements.start, &self.whole);
        if self.cut != Cut::All {
            // Padding begins as zeros.
            out.fill(0.0);
        }
        self.runs(elements, |here, at| init.fill(seed, name, at, &mut out[here.start - from..here.end - from]));
    }
}

/// Parameters that the optimizer treats alike, as PyTorch's parameter groups: a range of the flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub range: Range<usize>,
    /// Whether weight decay applies.
    pub decays: bool,
}

/// All parameters of a model and their offsets.
pub struct Layout {
    /// In the order of declaration.
    pub specs: Vec<Arc<Spec>>,
    /// End to end: the parameters to which weight decay applies, then the rest.
    pub groups: Vec<Group>,
    /// Elements of all parameters together.
    pub numel: usize,
    progress: Vec<Progress>,
}

/// How far a parameter's gradient is in a backward pass.
struct Progress {
    /// In how many places of the model the parameter is used; its gradient is complete after so many contributions.
    uses: usize,
    contributions: AtomicUsize,
}

/// A parameter before its offset is known.
struct Declared {
    name: String,
    shape: Vec<usize>,
    whole: Whole,
    cut: Cut,
    copies: Copies,
    uses: usize,
}

impl Layout {
    fn new(declared: Vec<Declared>) -> Layout {
        let mut starts = vec![0; declared.len()];
        let (mut groups, mut numel) = (Vec::new(), 0);
        for decays in [true, false] {
            let first = numel;
            for (one, start) in declared.iter().zip(&mut starts).filter(|(d, _)| (d.whole.shape.len() == 2) == decays) {
                *start = numel;
                numel += one.shape.iter().product::<usize>();
            }
            if declared.iter().any(|one| (one.whole.shape.len() == 2) == decays) {
                groups.push(Group { range: first..numel, decays });
            }
        }
        let progress = declared.iter().map(|one| Progress { uses: one.uses, contributions: AtomicUsize::new(0) });
        let progress = progress.collect();
        let spec = |(index, (one, start)): (usize, (Declared, usize))| {
            let Declared { name, shape, whole, cut, copies, .. } = one;
            Arc::new(Spec { name, shape, whole, cut, copies, index, start })
        };
        let specs = declared.into_iter().zip(starts).enumerate().map(spec).collect();
        Layout { specs, groups, numel, progress }
    }
}

/// The place of values or gradients.
pub enum Home<S: ?Sized> {
    /// Nowhere: the model is only declared.
    Nowhere,
    /// In one flat buffer.
    Here(Numbers),
    /// Sharded among ranks.
    Sharded(Arc<S>),
}

/// Finds values that are sharded among ranks.
pub trait Gather: Send + Sync {
    /// A parameter's value, for a layer that is about to use it: its elements are these of the vector.
    fn value(&self, spec: &Spec) -> Result<(Arc<Vec<f32>>, Range<usize>)>;
}

/// Takes in gradients that are sharded among ranks.
pub trait Collect: Send + Sync {
    /// Lets `add` add a contribution to a parameter's gradient, and calls it once.
    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> Result<()>;
}

/// Called during the backward pass, when a parameter's gradient is complete.
pub type Hook = Box<dyn Fn(&Params, &Spec) -> Result<()> + Send + Sync>;

/// A model's parameters and their gradients.
pub struct Params {
    declared: Mutex<Vec<Declared>>,
    layout: OnceLock<Layout>,
    values: RwLock<Home<dyn Gather>>,
    gradients: Mutex<Home<dyn Collect>>,
    hooks: RwLock<Vec<Arc<Hook>>>,
}

impl Params {
    /// An empty model.
    pub fn new() -> Arc<Params> {
        Arc::new(Params {
            declared: Mutex::default(),
            layout: OnceLock::new(),
            values: RwLock::new(Home::Nowhere),
            gradients: Mutex::new(Home::Nowhere),
            hooks: RwLock::default(),
        })
    }

    /// Declares a parameter that no other rank has a part or a copy of; nothing is allocated yet.
    pub fn declare(self: &Arc<Params>, name: impl Into<String>, shape: &[usize], init: Init) -> Result<Param> {
        let whole = Whole::new(name, shape, init);
        self.declare_shard(whole.name.clone(), whole, Cut::All, Copies::One)
    }

    /// Declares the parameter that `cut` takes of `whole`. Its `name` is the whole's, unless this model has several cuts of it.
    pub fn declare_shard(
        self: &Arc<Params>,
        name: impl Into<String>,
        whole: Whole,
        cut: Cut,
        copies: Copies,
    ) -> Result<Param> {
        let (name, shape) = (name.into(), cut.shape(&whole)?);
        let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.layout.get().is_some() {
            bail!("parameter {name} is declared after the model's layout was built: declare all of them first");
        }
        if declared.iter().any(|one| one.name == name) {
            bail!("two parameters are named {name}; names must be unique");
        }
        declared.push(Declared { name, shape, whole, cut, copies, uses: 1 });
        Ok(Param { index: declared.len() - 1, home: self.clone() })
    }

    /// All parameters and their offsets, which do not change any more.
    pub fn layout(&self) -> &Layout {
        let declared = || std::mem::take(&mut *self.declared.lock().unwrap_or_else(PoisonError::into_inner));
        self.layout.get_or_init(|| Layout::new(declared()))
    }

    /// The parameters in the order of declaration.
    pub fn specs(&self) -> &[Arc<Spec>] {
        &self.layout().specs
    }

    /// The number of elements of all parameters together.
    pub fn numel(&self) -> usize {
        self.layout().numel
    }

    /// Makes room for values and gradients, and initialises the values: functions of (seed, name, element).
    pub fn allocate(&self, seed: u64) {
        let mut values = vec![0.0; self.numel()];
        for spec in self.specs() {
            spec.initial(seed, 0..spec.numel(), &mut values[spec.range()]);
        }
        self.set_gradients(Home::Here(Numbers::F32(vec![0.0; values.len()])));
        self.set_values(Home::Here(Numbers::F32(values)));
    }

    /// All values, in the flat layout. Empty while they are stored in bf16 or sharded among ranks.
    pub fn values(&self) -> Locked<RwLockReadGuard<'_, Home<dyn Gather>>, f32> {
        self.stored_values()
    }

    /// All values in the type that they are stored in.
    pub fn stored_values<T: Stored>(&self) -> Locked<RwLockReadGuard<'_, Home<dyn Gather>>, T> {
        Locked::new(self.values.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// All values, to be changed: by the optimizer, a broadcast, a checkpoint.
    pub fn values_mut(&self) -> Locked<RwLockWriteGuard<'_, Home<dyn Gather>>, f32> {
        self.stored_values_mut()
    }

    /// All values in the type that they are stored in, to be changed.
    pub fn stored_values_mut<T: Stored>(&self) -> Locked<RwLockWriteGuard<'_, Home<dyn Gather>>, T> {
        Locked::new(self.values.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// All values; an error if this rank does not hold them whole, and in f32.
    pub fn whole(&self) -> Result<Locked<RwLockReadGuard<'_, Home<dyn Gather>>, f32>> {
        let values = self.values();
        if values.len() < self.numel() {
            bail!(
                "the parameters are not here as one f32 vector: they were not allocated, or ZeRO has sharded them\n\
                 help: all ranks together can gather them: see Zero::whole"
            );
        }
        Ok(values)
    }

    /// All gradients, in the flat layout. Empty while they are stored in bf16 or sharded among ranks.
    pub fn gradients(&self) -> Locked<MutexGuard<'_, Home<dyn Collect>>, f32> {
        self.stored_gradients()
    }

    /// All gradients in the type that they are stored in.
    pub fn stored_gradients<T: Stored>(&self) -> Locked<MutexGuard<'_, Home<dyn Collect>>, T> {
        Locked::new(self.gradients.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts values in place of those that were there, which it returns.
    pub fn set_values(&self, values: Home<dyn Gather>) -> Home<dyn Gather> {
        std::mem::replace(&mut *self.values.write().unwrap_or_else(PoisonError::into_inner), values)
    }

    /// Puts gradients in place of those that were there, which it returns.
    pub fn set_gradients(&self, gradients: Home<dyn Collect>) -> Home<dyn Collect> {
        std::mem::replace(&mut *self.gradients.lock().unwrap_or_else(PoisonError::into_inner), gradients)
    }

    /// Frees what is sharded: whoever sharded it is gone.
    pub fn forget_shards(&self) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*values, Home::Sharded(_)) {
            *values = Home::Nowhere;
        }
        drop(values);
        let mut gradients = self.gradients.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*gradients, Home::Sharded(_)) {
            *gradients = Home::Nowhere;
        }
    }

    /// To be called before the first micro-batch of a step: backward passes only ever add.
    pub fn zero_gradients(&self) {
        // A backward pass that failed may have left some of its contributions.
        self.layout().progress.iter().for_each(|one| one.contributions.store(0, Relaxed));
        match &mut *self.gradients.lock().unwrap_or_else(PoisonError::into_inner) {
            Home::Here(Numbers::F32(all)) => all.fill(0.0),
            Home::Here(Numbers::Bf16(all)) => all.fill(half::bf16::ZERO),
            Home::Nowhere | Home::Sharded(_) => {}
        }
    }

    /// Has `hook` called whenever a parameter's gradient is complete, after those that listen already, for as long as the
    /// [`Listener`] lives.
    pub fn listen(self: &Arc<Params>, hook: Hook) -> Listener {
        let hook = Arc::new(hook);
        self.hooks.write().unwrap_or_else(PoisonError::into_inner).push(hook.clone());
        Listener { params: self.clone(), hook }
    }
}

/// A hook's place among those that are called; it ends with this.
pub struct Listener {
    params: Arc<Params>,
    hook: Arc<Hook>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut hooks = self.params.hooks.write().unwrap_or_else(PoisonError::into_inner);
        hooks.retain(|hook| !Arc::ptr_eq(hook, &self.hook));
    }
}

/// All values or gradients of type `T`, locked; empty where there are none of this type.
pub struct Locked<G, T> {
    guard: G,
    none: Vec<T>,
}

impl<G, T> Locked<G, T> {
    fn new(guard: G) -> Locked<G, T> {
        Locked { guard, none: Vec::new() }
    }
}

impl<S: ?Sized + 'static, G: Deref<Target = Home<S>>, T: Stored> Deref for Locked<G, T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        match &*self.guard {
            Home::Here(numbers) => T::of(numbers).unwrap_or(&self.none),
            Home::Nowhere | Home::Sharded(_) => &self.none,
        }
    }
}

impl<S: ?Sized + 'static, G: DerefMut<Target = Home<S>>, T: Stored> DerefMut for Locked<G, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        match &mut *self.guard {
            Home::Here(numbers) => T::of_mut(numbers).unwrap_or(&mut self.none),
            Home::Nowhere | Home::Sharded(_) => &mut self.none,
        }
    }
}

/// A layer's handle on one parameter.
pub struct Param {
    index: usize,
    home: Arc<Params>,
}

impl Param {
    pub fn spec(&self) -> &Spec {
        &self.home.layout().specs[self.index]
    }

    /// The handle for a second place that uses the same parameter (tied weights): the gradient is complete when both
    /// places have contributed.
    pub fn tie(&self) -> Result<Param> {
        let mut declared = self.home.declared.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.home.layout.get(), declared.get_mut(self.index)) {
            (None, Some(one)) => one.uses += 1,
            _ => bail!("parameter {} is tied after the model's layout was built: tie it first", self.spec().name),
        }
        Ok(self.handle())
    }

    /// The same use in another hand: the operation that the layer puts into the graph.
    pub(crate) fn handle(&self) -> Param {
        Param { index: self.index, home: self.home.clone() }
    }

    /// The weight, for as long as the guard lives.
    pub fn value(&self) -> Result<Value<'_>> {
        let (spec, home) = (self.spec(), self.home.values.read().unwrap_or_else(PoisonError::into_inner));
        let gather = match &*home {
            Home::Here(Numbers::F32(_)) => return Ok(Value { range: spec.range(), all: All::Held(home) }),
            Home::Here(Numbers::Bf16(all)) => {
                let mut wide = vec![0.0; spec.numel()];
                widen(&all[spec.range()], &mut wide);
                return Ok(Value { range: 0..wide.len(), all: All::Widened(wide) });
            }
            Home::Sharded(gather) => gather.clone(),
            Home::Nowhere => bail!("parameter {} has no values yet: call Params::allocate first", spec.name),
        };
        drop(home);
        let (all, range) = profile::elsewhere(|| gather.value(spec))?;
        Ok(Value { all: All::Gathered(all), range })
    }

    /// Lets `add` add this use's contribution to the gradient, and calls the hooks if it was the last one.
    pub fn add_gradient(&self, add: impl FnOnce(&mut [f32])) -> Result<()> {
        let (spec, Progress { uses, contributions }) = (self.spec(), &self.home.layout().progress[self.index]);
        self.add_where_it_is(spec, add)?;
        if contributions.fetch_add(1, Relaxed) + 1 == *uses {
            contributions.store(0, Relaxed);
            for hook in &*self.home.hooks.read().unwrap_or_else(PoisonError::into_inner) {
                profile::elsewhere(|| hook(&self.home, spec))?;
            }
        }
        Ok(())
    }

    fn add_where_it_is(&self, spec: &Spec, add: impl FnOnce(&mut [f32])) -> Result<()> {
        let mut home = self.home.gradients.lock().unwrap_or_else(PoisonError::into_inner);
        let collect = match &mut *home {
            Home::Here(Numbers::F32(all)) => {
                add(&mut all[spec.range()]);
                return Ok(());
            }
            Home::Here(Numbers::Bf16(all)) => {
                Stored::change(&mut all[spec.range()], add);
                return Ok(());
            }
            Home::Sharded(collect) => collect.clone(),
            Home::Nowhere => bail!("parameter {} has no gradient yet: call Params::allocate first", spec.name),
        };
        drop(home);
        // A closure that can be called once, behind one that a trait object can take.
        let mut add = Some(add);
        collect.add_gradient(spec, &mut |sum| {
            if let Some(add) = add.take() {
                add(sum);
            }
        })
    }
}

/// A weight in use: a slice of the parameter's elements, row-major.
pub struct Value<'a> {
    all: All<'a>,
    range: Range<usize>,
}

enum All<'a> {
    Held(RwLockReadGuard<'a, Home<dyn Gather>>),
    Widened(Vec<f32>),
    Gathered(Arc<Vec<f32>>),
}

impl Deref for Value<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        let all: &[f32] = match &self.all {
            All::Held(home) => match &**home {
                Home::Here(Numbers::F32(all)) => all,
                _ => &[],
            },
            All::Widened(all) => all,
            All::Gathered(all) => all,
        };
        &all[self.range.clone()]
    }
}
