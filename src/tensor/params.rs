//! The home of a model's weights, and a layer's way to them.
//!
//! One flat buffer holds all parameters of a model, group by group ([`FlatLayout::groups`]). Within
//! a group, parameters have the order in which the model declares them. A second buffer of the same
//! layout holds their gradients. A layer holds a [`Param`], a handle. When the layer runs, forward
//! or backward, it asks the handle for the weight. Its backward pass adds the weight's gradient to
//! the flat buffer, and the handle then calls the hooks. All of parallelism starts from these
//! calls: data parallelism sums flat buckets when a hook is called, and ZeRO gathers a weight
//! behind the handle and frees it again.
//!
//! The buffers hold f32, or bf16 in half the memory. A handle widens the bf16 that it returns, and
//! rounds the sums that it stores. Values or gradients that are sharded among ranks have no buffer
//! here: a [`ShardedValues`] or a [`ShardedGradients`] replaces it.
//!
//! A model first declares its parameters and later allocates them. The first question about the
//! layout builds it; it never changes afterwards.

use super::random::Init;
use super::stored::{Numbers, Stored, widen};
use super::whole::{Copies, Cut, Whole};
use super::{few_rows, profile};
use candle_core::{Result, bail};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// A parameter's description.
#[derive(Debug)]
pub struct Spec {
    /// Unique within the model, such as `blocks.0.qkv.weight`.
    pub name: String,
    /// The shape on this rank: the whole's shape, unless the parameter is cut.
    pub shape: Vec<usize>,
    pub whole: Whole,
    pub cut: Cut,
    pub copies: Copies,
    /// Position in the order of declaration.
    pub index: usize,
    /// Offset of the first element in the flat buffers; 0 until the layout is built.
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

    /// Splits `elements` of the parameter into runs that are contiguous in its whole. Calls `each`
    /// with every run: its elements, and the offset of its first one in the whole.
    pub fn runs(&self, elements: Range<usize>, each: impl FnMut(Range<usize>, usize)) {
        self.cut.runs(&self.whole, elements, each);
    }

    /// Writes the initial values of `elements` under `seed`. A value does not depend on how the
    /// whole is cut.
    pub fn initial(&self, seed: u64, elements: Range<usize>, out: &mut [f32]) {
        let from = elements.start;
        let Whole { name, init, .. } = &self.whole;
        if self.cut != Cut::All {
            // Padding begins as zeros.
            out.fill(0.0);
        }
        self.runs(elements, |here, at| {
            init.fill(seed, name, at, &mut out[here.start - from..here.end - from])
        });
    }
}

/// Parameters that the optimizer treats alike, as PyTorch's parameter groups: a range of the flat
/// buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub range: Range<usize>,
    /// Whether weight decay applies.
    pub decays: bool,
}

/// All parameters of a model and their offsets.
pub struct FlatLayout {
    /// In the order of declaration.
    pub specs: Vec<Arc<Spec>>,
    /// The parameters to which weight decay applies, followed by all others.
    pub groups: Vec<Group>,
    /// Elements of all parameters together.
    pub numel: usize,
    progress: Vec<Progress>,
}

/// The progress of a parameter's gradient in a backward pass.
struct Progress {
    /// The number of layers that use the parameter. Its gradient is complete after as many
    /// contributions.
    uses: usize,
    contributions: AtomicUsize,
}

impl FlatLayout {
    /// Gives every parameter its offset.
    fn new(declared: Vec<(Spec, Progress)>) -> FlatLayout {
        let (mut specs, progress): (Vec<Spec>, Vec<Progress>) = declared.into_iter().unzip();
        let mut groups = Vec::new();
        let mut numel = 0;
        for decays in [true, false] {
            let first = numel;
            for spec in specs.iter_mut().filter(|spec| spec.decays() == decays) {
                spec.start = numel;
                numel += spec.numel();
            }
            if specs.iter().any(|spec| spec.decays() == decays) {
                groups.push(Group { range: first..numel, decays });
            }
        }
        FlatLayout {
            specs: specs.into_iter().map(Arc::new).collect(),
            groups,
            numel,
            progress,
        }
    }
}

/// Where a model's values or gradients are stored.
pub enum Storage<S: ?Sized> {
    /// Nowhere: the model is only declared.
    Unallocated,
    /// On this rank, in one flat buffer.
    Local(Numbers),
    /// Sharded among ranks.
    Sharded(Arc<S>),
}

impl<S: ?Sized> Storage<S> {
    fn forget_shards(&mut self) {
        if matches!(self, Storage::Sharded(_)) {
            *self = Storage::Unallocated;
        }
    }
}

/// Supplies values that are sharded among ranks.
pub trait ShardedValues: Send + Sync {
    /// The value of a parameter that a layer is about to use, as a range of a vector.
    ///
    /// # Errors
    /// If the ranks that hold the value cannot be reached.
    fn value(&self, spec: &Spec) -> Result<(Arc<Vec<f32>>, Range<usize>)>;
}

/// Takes in gradients that are sharded among ranks.
pub trait ShardedGradients: Send + Sync {
    /// Calls `add` once with the memory of a parameter's gradient; `add` adds a contribution to it.
    ///
    /// # Errors
    /// If `add`'s memory cannot be had: a rank has ended with which this one shards gradients.
    fn add_gradient(&self, spec: &Spec, add: &mut dyn FnMut(&mut [f32])) -> Result<()>;
}

/// Called during the backward pass, when a parameter's gradient is complete.
pub type Hook = Box<dyn Fn(&Params, &Spec) -> Result<()> + Send + Sync>;

/// A model's parameters and their gradients.
pub struct Params {
    declared: Mutex<Vec<(Spec, Progress)>>,
    layout: OnceLock<FlatLayout>,
    values: RwLock<Storage<dyn ShardedValues>>,
    gradients: Mutex<Storage<dyn ShardedGradients>>,
    hooks: RwLock<Vec<Arc<Hook>>>,
}

impl Params {
    /// An empty model.
    pub fn new() -> Arc<Params> {
        Arc::new(Params {
            declared: Mutex::default(),
            layout: OnceLock::new(),
            values: RwLock::new(Storage::Unallocated),
            gradients: Mutex::new(Storage::Unallocated),
            hooks: RwLock::default(),
        })
    }

    /// Declares a parameter that is whole here and that only data parallelism replicates. Allocates
    /// nothing yet.
    ///
    /// # Errors
    /// As [`Params::declare_shard`].
    pub fn declare(
        self: &Arc<Params>,
        name: impl Into<String>,
        shape: &[usize],
        init: Init,
    ) -> Result<Param> {
        let whole = Whole::new(name, shape, init);
        self.declare_shard(whole.name.clone(), whole, Cut::All, Copies::One)
    }

    /// Declares the parameter that `cut` takes of `whole`. Its `name` is the whole's, unless this
    /// model has several cuts of it.
    ///
    /// # Errors
    /// If the layout was built already, a parameter has the same name, or `whole` cannot be cut
    /// this way.
    pub fn declare_shard(
        self: &Arc<Params>,
        name: impl Into<String>,
        whole: Whole,
        cut: Cut,
        copies: Copies,
    ) -> Result<Param> {
        let name = name.into();
        let shape = cut.shape(&whole)?;
        let mut declared = self.declared();
        if self.layout.get().is_some() {
            bail!(
                "parameter {name} is declared after the model's layout was built: declare all of them first"
            );
        }
        if declared.iter().any(|(spec, _)| spec.name == name) {
            bail!("two parameters are named {name}; names must be unique");
        }
        let index = declared.len();
        let progress = Progress { uses: 1, contributions: AtomicUsize::new(0) };
        declared.push((Spec { name, shape, whole, cut, copies, index, start: 0 }, progress));
        Ok(Param { index, home: self.clone() })
    }

    /// All parameters and their offsets. The first call ends the declarations.
    pub fn layout(&self) -> &FlatLayout {
        self.layout
            .get_or_init(|| FlatLayout::new(std::mem::take(&mut *self.declared())))
    }

    /// The parameters in the order of declaration.
    pub fn specs(&self) -> &[Arc<Spec>] {
        &self.layout().specs
    }

    /// The number of elements of all parameters together.
    pub fn numel(&self) -> usize {
        self.layout().numel
    }

    /// Allocates values and gradients. The initial values are functions of (seed, name, element).
    pub fn allocate(&self, seed: u64) {
        let mut values = vec![0.0; self.numel()];
        for spec in self.specs() {
            spec.initial(seed, 0..spec.numel(), &mut values[spec.range()]);
        }
        self.set_gradients(Storage::Local(Numbers::F32(vec![0.0; values.len()])));
        self.set_values(Storage::Local(Numbers::F32(values)));
    }

    /// All values, in the flat layout. Empty while they are stored in bf16 or sharded among ranks.
    pub fn values(&self) -> Locked<RwLockReadGuard<'_, Storage<dyn ShardedValues>>, f32> {
        self.stored_values()
    }

    /// All values that are stored as `T`. Empty while they are stored in a different type or
    /// sharded among ranks.
    pub fn stored_values<T: Stored>(
        &self,
    ) -> Locked<RwLockReadGuard<'_, Storage<dyn ShardedValues>>, T> {
        Locked::new(self.home_of_values())
    }

    /// All values, for the optimizer, a broadcast or a checkpoint to change.
    pub fn values_mut(&self) -> Locked<RwLockWriteGuard<'_, Storage<dyn ShardedValues>>, f32> {
        self.stored_values_mut()
    }

    /// All values that are stored as `T`, to be changed. Empty while they are stored in a different
    /// type or sharded.
    pub fn stored_values_mut<T: Stored>(
        &self,
    ) -> Locked<RwLockWriteGuard<'_, Storage<dyn ShardedValues>>, T> {
        Locked::new(self.values.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// All values; an error if this rank does not hold all of them in f32.
    ///
    /// # Errors
    /// If the values were not allocated, are stored in bf16, or are sharded among ranks.
    pub fn whole(&self) -> Result<Locked<RwLockReadGuard<'_, Storage<dyn ShardedValues>>, f32>> {
        let values = self.values();
        if values.len() < self.numel() {
            bail!(
                "the parameters are not here as one f32 vector: they were not allocated, or ZeRO has sharded them\n\
                 help: all ranks together can gather them: see Zero::whole"
            );
        }
        Ok(values)
    }

    /// All gradients, in the flat layout. Empty while they are stored in bf16 or sharded among
    /// ranks.
    pub fn gradients(&self) -> Locked<MutexGuard<'_, Storage<dyn ShardedGradients>>, f32> {
        self.stored_gradients()
    }

    /// All gradients that are stored as `T`. Empty while they are stored in a different type or
    /// sharded among ranks.
    pub fn stored_gradients<T: Stored>(
        &self,
    ) -> Locked<MutexGuard<'_, Storage<dyn ShardedGradients>>, T> {
        Locked::new(self.home_of_gradients())
    }

    /// Replaces the values, and returns the earlier ones.
    pub fn set_values(&self, values: Storage<dyn ShardedValues>) -> Storage<dyn ShardedValues> {
        std::mem::replace(&mut *self.values.write().unwrap_or_else(PoisonError::into_inner), values)
    }

    /// Replaces the gradients, and returns the earlier ones.
    pub fn set_gradients(
        &self,
        gradients: Storage<dyn ShardedGradients>,
    ) -> Storage<dyn ShardedGradients> {
        std::mem::replace(&mut *self.home_of_gradients(), gradients)
    }

    /// Frees sharded values and gradients: the strategy that sharded them has ended.
    pub fn forget_shards(&self) {
        self.values.write().unwrap_or_else(PoisonError::into_inner).forget_shards();
        self.home_of_gradients().forget_shards();
    }

    /// Sets the gradients to zero. A step needs that before its first micro-step: backward passes
    /// only ever add.
    pub fn zero_gradients(&self) {
        // A backward pass that failed may have left some of its contributions.
        for one in &self.layout().progress {
            one.contributions.store(0, Relaxed);
        }
        match &mut *self.home_of_gradients() {
            Storage::Local(Numbers::F32(all)) => all.fill(0.0),
            Storage::Local(Numbers::Bf16(all)) => all.fill(half::bf16::ZERO),
            Storage::Unallocated | Storage::Sharded(_) => {}
        }
    }

    /// Registers `hook`: every complete gradient calls it, after the hooks that were registered
    /// earlier. Dropping the [`Listener`] unregisters it.
    pub fn listen(self: &Arc<Params>, hook: Hook) -> Listener {
        let hook = Arc::new(hook);
        self.hooks.write().unwrap_or_else(PoisonError::into_inner).push(hook.clone());
        Listener { params: self.clone(), hook }
    }

    fn declared(&self) -> MutexGuard<'_, Vec<(Spec, Progress)>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn home_of_values(&self) -> RwLockReadGuard<'_, Storage<dyn ShardedValues>> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn home_of_gradients(&self) -> MutexGuard<'_, Storage<dyn ShardedGradients>> {
        self.gradients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered hook. Dropping this unregisters the hook.
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

/// Locked values or gradients, as a vector of `T`; an empty one if they are stored in a different
/// type or not here.
pub struct Locked<G, T> {
    guard: G,
    none: Vec<T>,
}

impl<G, T> Locked<G, T> {
    fn new(guard: G) -> Locked<G, T> {
        Locked { guard, none: Vec::new() }
    }
}

impl<S: ?Sized + 'static, G: Deref<Target = Storage<S>>, T: Stored> Deref for Locked<G, T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        match &*self.guard {
            Storage::Local(numbers) => T::of(numbers).unwrap_or(&self.none),
            Storage::Unallocated | Storage::Sharded(_) => &self.none,
        }
    }
}

impl<S: ?Sized + 'static, G: DerefMut<Target = Storage<S>>, T: Stored> DerefMut for Locked<G, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        match &mut *self.guard {
            Storage::Local(numbers) => T::of_mut(numbers).unwrap_or(&mut self.none),
            Storage::Unallocated | Storage::Sharded(_) => &mut self.none,
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

    /// A handle for one more layer that uses the same parameter (tied weights). The gradient is
    /// complete when every such layer has contributed.
    ///
    /// # Errors
    /// If the layout was built already.
    pub fn tie(&self) -> Result<Param> {
        match self.home.declared().get_mut(self.index) {
            Some((_, progress)) => progress.uses += 1,
            None => bail!(
                "parameter {} is tied after the model's layout was built: tie it first",
                self.spec().name
            ),
        }
        Ok(self.handle())
    }

    /// A second handle for the same use: the operation that the layer puts into the graph takes it.
    pub(crate) fn handle(&self) -> Param {
        Param { index: self.index, home: self.home.clone() }
    }

    /// The weight, for as long as the guard lives.
    ///
    /// # Errors
    /// If it was not allocated, or the ranks that hold its parts cannot be reached.
    pub fn value(&self) -> Result<Value<'_>> {
        let spec = self.spec();
        let home = self.home.home_of_values();
        let gather = match &*home {
            Storage::Local(Numbers::F32(_)) => {
                return Ok(Value { range: spec.range(), all: All::Flat(home) });
            }
            Storage::Local(Numbers::Bf16(all)) => {
                let mut wide = vec![0.0; spec.numel()];
                widen(&all[spec.range()], &mut wide);
                return Ok(Value { range: 0..wide.len(), all: All::Widened(wide) });
            }
            Storage::Sharded(gather) => gather.clone(),
            Storage::Unallocated => {
                bail!("parameter {} has no values yet: call Params::allocate first", spec.name)
            }
        };
        drop(home);
        let (all, range) = profile::excluded(|| gather.value(spec))?;
        Ok(Value { all: All::Gathered(all), range })
    }

    /// Calls `read` with the weight in the type in which this rank stores it: nothing is copied,
    /// unless ranks gather the weight.
    pub(super) fn stored<R>(&self, read: impl FnOnce(few_rows::Numbers) -> R) -> Result<R> {
        if let Storage::Local(Numbers::Bf16(all)) = &*self.home.home_of_values() {
            return Ok(read(few_rows::Numbers::Bf16(&all[self.spec().range()])));
        }
        Ok(read(few_rows::Numbers::F32(&self.value()?)))
    }

    /// Some elements of the weight, for as long as the guard lives.
    pub(super) fn elements(&self, elements: Range<usize>) -> Result<Value<'_>> {
        let home = self.home.home_of_values();
        if let Storage::Local(Numbers::Bf16(all)) = &*home {
            let mut wide = vec![0.0; elements.len()];
            widen(&all[self.spec().range()][elements], &mut wide);
            return Ok(Value { range: 0..wide.len(), all: All::Widened(wide) });
        }
        drop(home);
        let Value { all, range } = self.value()?;
        Ok(Value {
            all,
            range: range.start + elements.start..range.start + elements.end,
        })
    }

    /// Calls `add` to add this use's contribution to the gradient. The last contribution calls the
    /// hooks.
    ///
    /// # Errors
    /// If gradients were not allocated, or a hook fails: a rank has ended with which it
    /// communicates.
    pub fn add_gradient(&self, add: impl FnOnce(&mut [f32])) -> Result<()> {
        let spec = self.spec();
        let Progress { uses, contributions } = &self.home.layout().progress[self.index];
        self.add_where_it_is(spec, add)?;
        if contributions.fetch_add(1, Relaxed) + 1 == *uses {
            contributions.store(0, Relaxed);
            for hook in &*self.home.hooks.read().unwrap_or_else(PoisonError::into_inner) {
                profile::excluded(|| hook(&self.home, spec))?;
            }
        }
        Ok(())
    }

    fn add_where_it_is(&self, spec: &Spec, add: impl FnOnce(&mut [f32])) -> Result<()> {
        let mut home = self.home.home_of_gradients();
        let collect = match &mut *home {
            Storage::Local(Numbers::F32(all)) => {
                add(&mut all[spec.range()]);
                return Ok(());
            }
            Storage::Local(Numbers::Bf16(all)) => {
                Stored::change(&mut all[spec.range()], add);
                return Ok(());
            }
            Storage::Sharded(collect) => collect.clone(),
            Storage::Unallocated => {
                bail!("parameter {} has no gradient yet: call Params::allocate first", spec.name)
            }
        };
        drop(home);
        // A trait object cannot take a closure that may be called only once. The option makes one
        // that it can take.
        let mut add = Some(add);
        collect.add_gradient(spec, &mut |sum| {
            if let Some(add) = add.take() {
                add(sum);
            }
        })
    }
}

/// A weight in use: the parameter's elements, row-major.
pub struct Value<'a> {
    all: All<'a>,
    range: Range<usize>,
}

/// The memory that a weight in use is part of.
enum All<'a> {
    Flat(RwLockReadGuard<'a, Storage<dyn ShardedValues>>),
    Widened(Vec<f32>),
    Gathered(Arc<Vec<f32>>),
}

impl Deref for Value<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        let all: &[f32] = match &self.all {
            All::Flat(home) => match &**home {
                Storage::Local(Numbers::F32(all)) => all,
                _ => &[],
            },
            All::Widened(all) => all,
            All::Gathered(all) => all,
        };
        &all[self.range.clone()]
    }
}
