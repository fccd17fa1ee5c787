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
//!
//! Reading order: `params/layout.rs` (a parameter's description and its offset),
//! `params/storage.rs` (where numbers are stored), this file, `params/param.rs` (the handle),
//! `params/guards.rs` and `params/exclusive.rs` (what a caller holds meanwhile, and what tells it
//! that it still does).

mod exclusive;
mod guards;
mod layout;
mod param;
mod storage;

pub use guards::{FlatGuard, Gradients, Values, ValuesMut};
pub use layout::{FlatLayout, Group, Spec};
pub use param::{Param, Value};
pub use storage::{ShardedGradients, ShardedValues, Storage};

use super::random::Init;
use super::stored::{Numbers, Stored};
use super::whole::{Copies, Cut, Whole};
use crate::memory::zeros;
use candle_core::{Error, Result, bail};
use exclusive::{Exclusive, StillHeld, WriteGuard};
use layout::Progress;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// Called during the backward pass, when a parameter's gradient is complete.
pub type Hook = Box<dyn Fn(&Params, &Spec) -> Result<()> + Send + Sync>;

/// A model's parameters and their gradients.
///
/// A layer of one's own, and gradient descent over the flat buffers:
///
/// ```
/// use shardlab::tensor::{Activation, Init, Params, Precision, linear_bias, squared_error};
///
/// let params = Params::new();
/// let weight = params.declare("fc.weight", &[1, 2], Init::Constant(0.0))?;
/// let bias = params.declare("fc.bias", &[1], Init::Constant(0.0))?;
/// params.allocate(1337); // the seed, if initial values are random
///
/// for _ in 0..20 {
///     params.zero_gradients();
///     let x = Activation::start(vec![1.0, 2.0], (1, 2))?; // here the tape begins
///     let y = linear_bias(&x, &weight, &bias, Precision::F32)?;
///     squared_error(&y, &[6.0])?.backward(vec![1.0], None)?;
///     for (value, gradient) in params.values_mut().iter_mut().zip(&*params.gradients()) {
///         *value -= 0.05 * gradient;
///     }
/// }
/// let values: Vec<f32> = params.values().iter().map(|value| value.round()).collect();
/// assert_eq!(values, [1.0, 2.0, 1.0]); // 1 · 1 + 2 · 2 + 1 = 6
/// # anyhow::Ok(())
/// ```
pub struct Params {
    declared: Mutex<Vec<(Spec, Progress)>>,
    layout: OnceLock<FlatLayout>,
    values: Exclusive<Storage<dyn ShardedValues>>,
    gradients: Exclusive<Storage<dyn ShardedGradients>>,
    hooks: RwLock<Vec<Arc<Hook>>>,
}

impl Params {
    /// An empty model.
    pub fn new() -> Arc<Params> {
        Arc::new(Params {
            declared: Mutex::default(),
            layout: OnceLock::new(),
            values: Exclusive::new("values", Storage::Unallocated),
            gradients: Exclusive::new("gradients", Storage::Unallocated),
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
        let progress = Progress {
            uses: 1,
            contributions: AtomicUsize::new(0),
            outdated: AtomicBool::new(false),
        };
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
        let mut values = zeros(self.numel());
        for spec in self.specs() {
            spec.initial(seed, 0..spec.numel(), &mut values[spec.range()]);
        }
        self.set_gradients(Storage::Local(Numbers::F32(zeros(values.len()))));
        self.set_values(Storage::Local(Numbers::F32(values)));
    }

    /// All values, in the flat layout.
    ///
    /// # Panics
    ///
    /// As [`Params::stored_values`].
    #[track_caller]
    pub fn values(&self) -> Values<'_> {
        self.stored_values()
    }

    /// All values, in the flat layout, if they are stored as `T`.
    ///
    /// # Panics
    ///
    /// If this rank does not hold all of them as `T`, or a guard is held to change them.
    /// [`Params::whole`] has an error instead.
    #[track_caller]
    pub fn stored_values<T: Stored>(&self) -> Values<'_, T> {
        held(FlatGuard::new(self.values.read(), "values"))
    }

    /// All values, for the optimizer, a broadcast or a checkpoint to change.
    ///
    /// # Panics
    ///
    /// As [`Params::stored_values_mut`].
    #[track_caller]
    pub fn values_mut(&self) -> ValuesMut<'_> {
        self.stored_values_mut()
    }

    /// All values that are stored as `T`, to be changed.
    ///
    /// # Panics
    ///
    /// If this rank does not hold all of them as `T`, or any guard of them is held.
    /// [`Params::whole_mut`] has an error instead.
    #[track_caller]
    pub fn stored_values_mut<T: Stored>(&self) -> ValuesMut<'_, T> {
        held(FlatGuard::new(self.values.write(), "values"))
    }

    /// All values in f32; an error where [`Params::values`] panics.
    ///
    /// # Errors
    /// If the values were not allocated, are stored in bf16, or are sharded among ranks; if a guard
    /// is held to change them.
    #[track_caller]
    pub fn whole(&self) -> Result<Values<'_>> {
        asked(FlatGuard::new(self.values.read(), "values"))
    }

    /// All values in f32, to be changed; an error where [`Params::values_mut`] panics.
    ///
    /// # Errors
    /// As [`Params::whole`], and if any guard of them is held.
    #[track_caller]
    pub fn whole_mut(&self) -> Result<ValuesMut<'_>> {
        asked(FlatGuard::new(self.values.write(), "values"))
    }

    /// All gradients, in the flat layout.
    ///
    /// # Panics
    ///
    /// As [`Params::stored_gradients`].
    #[track_caller]
    pub fn gradients(&self) -> Gradients<'_> {
        self.stored_gradients()
    }

    /// All gradients that are stored as `T`.
    ///
    /// # Panics
    ///
    /// If this rank does not hold all of them as `T`, or a guard of them is held.
    /// [`Params::whole_gradients`] has an error instead.
    #[track_caller]
    pub fn stored_gradients<T: Stored>(&self) -> Gradients<'_, T> {
        held(FlatGuard::new(self.all_gradients(), "gradients"))
    }

    /// All gradients in f32; an error where [`Params::gradients`] panics.
    ///
    /// # Errors
    /// If the gradients were not allocated, are stored in bf16, or are sharded among ranks; if a
    /// guard of them is held.
    #[track_caller]
    pub fn whole_gradients(&self) -> Result<Gradients<'_>> {
        asked(FlatGuard::new(self.all_gradients(), "gradients"))
    }

    /// Bytes of the values in this rank's own buffer: 0 while they are sharded.
    #[track_caller]
    pub fn value_bytes(&self) -> usize {
        held(self.values.read()).bytes()
    }

    /// Bytes of the gradients in this rank's own buffer: 0 while they are sharded.
    #[track_caller]
    pub fn gradient_bytes(&self) -> usize {
        held(self.gradients.write()).bytes()
    }

    /// Replaces the values, and returns the earlier ones.
    ///
    /// # Panics
    ///
    /// If a guard of them is held.
    #[track_caller]
    pub fn set_values(&self, values: Storage<dyn ShardedValues>) -> Storage<dyn ShardedValues> {
        std::mem::replace(&mut *held(self.values.write()), values)
    }

    /// Replaces the gradients, and returns the earlier ones.
    ///
    /// # Panics
    ///
    /// If a guard of them is held.
    #[track_caller]
    pub fn set_gradients(
        &self,
        gradients: Storage<dyn ShardedGradients>,
    ) -> Storage<dyn ShardedGradients> {
        std::mem::replace(&mut *held(self.all_gradients()), gradients)
    }

    /// Frees sharded values and gradients: the strategy that sharded them has ended. What a guard
    /// holds is not sharded, and stays.
    pub fn forget_shards(&self) {
        if let Ok(mut values) = self.values.write() {
            values.forget_shards();
        }
        if let Ok(mut gradients) = self.gradients.write() {
            gradients.forget_shards();
        }
    }

    /// Sets the gradients to zero. A step needs that before its first micro-step: backward passes
    /// only ever add. The zeros are written when somebody reads them. Most gradients' first
    /// contribution replaces what was there, which saves two passes over the buffer.
    ///
    /// # Panics
    ///
    /// If a guard of them is held.
    #[track_caller]
    pub fn zero_gradients(&self) {
        let _guard = held(self.gradients.write());
        for one in &self.layout().progress {
            // A backward pass that failed may have left some of its contributions.
            one.contributions.store(0, Relaxed);
            one.outdated.store(true, Relaxed);
        }
    }

    /// The gradients, all of them up to date.
    #[track_caller]
    fn all_gradients(
        &self,
    ) -> std::result::Result<WriteGuard<'_, Storage<dyn ShardedGradients>>, StillHeld> {
        let mut gradients = self.gradients.write()?;
        // Where no layout is, nothing was zeroed.
        let layout = self.layout.get();
        for (spec, one) in layout.iter().flat_map(|all| all.specs.iter().zip(&all.progress)) {
            if one.outdated.swap(false, Relaxed) {
                gradients.zero(spec.range());
            }
        }
        Ok(gradients)
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
}

/// What a guard gives access to. A program that has none has a mistake in it, like one that reads
/// past the end of a list.
#[track_caller]
fn held<G, E: Display>(guard: std::result::Result<G, E>) -> G {
    match guard {
        Ok(guard) => guard,
        Err(error) => panic!("{error}"),
    }
}

/// The same as an error, without candle's backtrace: the text says where to look.
fn asked<G, E: Display>(guard: std::result::Result<G, E>) -> Result<G> {
    guard.map_err(|error| Error::Msg(error.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::matmul::Write;
    use std::ops::Range;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn weight() -> (Arc<Params>, Param) {
        let params = Params::new();
        let weight = params.declare("fc.weight", &[2, 3], Init::Normal(0.02)).unwrap();
        params.allocate(1337);
        (params, weight)
    }

    fn panic_of<R>(work: impl FnOnce() -> R) -> String {
        let caught = catch_unwind(AssertUnwindSafe(work)).map(drop).unwrap_err();
        caught.downcast_ref::<String>().expect("a text").clone()
    }

    /// A rank that waited for its own guard would wait for ever.
    #[test]
    fn a_guard_that_is_still_held_is_named_at_once() {
        let (params, weight) = weight();
        let gradients = params.gradients();
        let here = format!("params.rs:{}:", line!() - 1);
        let help = "help: drop that guard first: drop(gradients)";
        for text in [
            panic_of(|| params.gradients()[0]),
            panic_of(|| params.zero_gradients()),
            weight.add_gradient(|_| ()).unwrap_err().to_string(),
            params.whole_gradients().map(drop).unwrap_err().to_string(),
        ] {
            assert!(text.contains(&here) && text.contains(help), "{text}");
        }
        drop(gradients);
        weight.add_gradient(|gradient| gradient.fill(1.0)).unwrap();
        assert_eq!(*params.gradients(), [1.0; 6]);

        let values = params.values();
        let here = format!("params.rs:{}:", line!() - 1);
        assert_eq!(*values, *params.values(), "several may read");
        assert_eq!(values[..], weight.value().unwrap()[..]);
        let text = panic_of(|| params.values_mut().fill(0.0));
        assert!(text.contains(&here) && text.contains("drop(values)"), "{text}");
        drop(values);
        let _values = params.values_mut();
        assert!(weight.value().is_err() && params.whole().is_err());
    }

    /// Nothing of an earlier step is read, whether or not a pass has come by.
    #[test]
    fn gradients_begin_a_step_as_zeros() {
        let params = Params::new();
        let names = ["a", "b", "c"];
        let [a, b, c] = names.map(|name| params.declare(name, &[1], Init::Constant(0.0)).unwrap());
        params.allocate(1);
        for _ in 0..2 {
            params.zero_gradients();
            a.write_gradient(|sum, write| sum[0] = if write == Write::Add { 8.0 } else { 1.0 })
                .unwrap();
            b.add_gradient(|sum| sum[0] += 2.0).unwrap();
            b.write_gradient(|sum, write| sum[0] += if write == Write::Add { 2.0 } else { 8.0 })
                .unwrap();
            let all = params.gradients().to_vec();
            assert_eq!(all, [1.0, 4.0, 0.0]);
            c.add_gradient(|sum| sum[0] += 5.0).unwrap();
            assert_eq!(*params.gradients(), [1.0, 4.0, 5.0]);
        }
        params.zero_gradients();
        match params.set_gradients(Storage::Unallocated) {
            Storage::Local(Numbers::F32(all)) => assert_eq!(all, [0.0; 3]),
            _ => panic!("they were on this rank"),
        }
    }

    /// No list is silently empty.
    #[test]
    fn values_that_are_not_here_are_an_error() {
        struct Elsewhere;
        impl ShardedValues for Elsewhere {
            fn value(&self, _spec: &Spec) -> Result<(Arc<Vec<f32>>, Range<usize>)> {
                bail!("not asked for here")
            }
        }
        let (params, _weight) = weight();
        let earlier = params.set_values(Storage::Sharded(Arc::new(Elsewhere)));
        for text in [
            panic_of(|| params.values().len()),
            params.whole().map(drop).unwrap_err().to_string(),
        ] {
            assert!(text.contains("the values are sharded among ranks"), "{text}");
            assert!(text.contains("see Zero::whole"), "{text}");
        }
        params.set_values(earlier);
        assert_eq!(params.values().len(), 6);
        let text = panic_of(|| params.stored_values::<half::bf16>().len());
        assert!(text.contains("stored in a different type"), "{text}");
        params.set_gradients(Storage::Unallocated);
        let text = panic_of(|| params.gradients().len());
        assert!(text.contains("the gradients are not allocated yet"), "{text}");
    }
}
