//! A layer's way to its weight: forward it asks for the value, backward it adds a gradient.

use super::exclusive::ReadGuard;
use super::layout::Progress;
use super::{Params, ShardedValues, Spec, Storage, asked};
use crate::tensor::matmul::Write;
use crate::tensor::stored::widen;
use crate::tensor::{Numbers, Stored, few_rows, profile};
use candle_core::{Result, bail};
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

/// A layer's handle on one parameter.
pub struct Param {
    pub(super) index: usize,
    pub(super) home: Arc<Params>,
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

    /// A second handle for the same use: the operation that the layer puts on the tape takes it.
    pub(crate) fn handle(&self) -> Param {
        Param { index: self.index, home: self.home.clone() }
    }

    /// The weight, for as long as the guard lives.
    ///
    /// # Errors
    /// If it was not allocated, if a guard is held to change the values, or the ranks that hold
    /// its parts cannot be reached.
    #[track_caller]
    pub fn value(&self) -> Result<Value<'_>> {
        let spec = self.spec();
        let home = asked(self.home.values.read())?;
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
    #[track_caller]
    pub(in crate::tensor) fn stored<R>(
        &self,
        read: impl FnOnce(few_rows::Numbers) -> R,
    ) -> Result<R> {
        if let Storage::Local(Numbers::Bf16(all)) = &*asked(self.home.values.read())? {
            return Ok(read(few_rows::Numbers::Bf16(&all[self.spec().range()])));
        }
        Ok(read(few_rows::Numbers::F32(&self.value()?)))
    }

    /// Some elements of the weight, for as long as the guard lives.
    #[track_caller]
    pub(in crate::tensor) fn elements(&self, elements: Range<usize>) -> Result<Value<'_>> {
        let home = asked(self.home.values.read())?;
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
    /// If gradients were not allocated, if a guard of them is held, or a hook fails: a rank has
    /// ended with which it communicates.
    pub fn add_gradient(&self, add: impl FnOnce(&mut [f32])) -> Result<()> {
        self.write_gradient(|sum, write| {
            if write == Write::Replace {
                sum.fill(0.0);
            }
            add(sum);
        })
    }

    /// [`Param::add_gradient`] by `contribute`, which is told to replace what stands there if this
    /// is the step's first contribution.
    #[track_caller]
    pub(in crate::tensor) fn write_gradient(
        &self,
        contribute: impl FnOnce(&mut [f32], Write),
    ) -> Result<()> {
        // A trait object cannot take a closure that may be called only once. The option makes one
        // that it can take.
        let mut contribute = Some(contribute);
        self.add_contribution(&mut |sum, write| {
            if let Some(contribute) = contribute.take() {
                contribute(sum, write);
            }
        })
    }

    fn add_contribution(&self, contribute: &mut dyn FnMut(&mut [f32], Write)) -> Result<()> {
        let spec = self.spec();
        let Progress { uses, contributions, outdated } = &self.home.layout().progress[self.index];
        let mut home = asked(self.home.gradients.write())?;
        let write = if outdated.swap(false, Relaxed) {
            Write::Replace
        } else {
            Write::Add
        };
        let sharded = match &mut *home {
            Storage::Local(Numbers::F32(all)) => {
                contribute(&mut all[spec.range()], write);
                None
            }
            Storage::Local(Numbers::Bf16(all)) => {
                Stored::change(&mut all[spec.range()], |sum| contribute(sum, write));
                None
            }
            Storage::Sharded(sharded) => Some(sharded.clone()),
            Storage::Unallocated => {
                bail!("parameter {} has no gradient yet: call Params::allocate first", spec.name)
            }
        };
        drop(home);
        if let Some(sharded) = sharded {
            sharded.add_gradient(spec, &mut |sum| contribute(sum, Write::Add))?;
        }
        if contributions.fetch_add(1, Relaxed) + 1 == *uses {
            contributions.store(0, Relaxed);
            for hook in &*self.home.hooks.read().unwrap_or_else(PoisonError::into_inner) {
                profile::excluded(|| hook(&self.home, spec))?;
            }
        }
        Ok(())
    }
}

/// A weight in use: the parameter's elements, row-major.
pub struct Value<'a> {
    all: All<'a>,
    range: Range<usize>,
}

/// The memory that a weight in use is part of.
enum All<'a> {
    Flat(ReadGuard<'a, Storage<dyn ShardedValues>>),
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
