//! What a caller holds of the flat buffers while it reads or changes them.
//!
//! Each of the guards can be used as a `Vec` of all numbers in the flat layout.

use super::exclusive::{ReadGuard, StillHeld, WriteGuard};
use super::{ShardedGradients, ShardedValues, Storage};
use crate::tensor::Stored;
use std::any::type_name;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use thiserror::Error;

/// Why values or gradients cannot be had as one vector.
#[derive(Debug, Error)]
pub enum NotHere {
    /// An earlier guard is in the way.
    #[error(transparent)]
    StillHeld(#[from] StillHeld),
    /// The model is only declared.
    #[error(
        "the {name} are not allocated yet\nhelp: call Params::allocate, or give the model to Zero::init"
    )]
    Unallocated { name: &'static str },
    /// No rank has all of them.
    #[error(
        "the {name} are sharded among ranks: this one has only its shard\n\
         help: all ranks together can gather the parameters: see Zero::whole"
    )]
    Sharded { name: &'static str },
    /// They are bf16 where f32 was asked for, or the other way round.
    #[error(
        "the {name} are stored in a different type than {asked}\n\
         help: stored_{name}::<T>() has them in their own type; Zero::whole gathers parameters in f32"
    )]
    DifferentType { name: &'static str, asked: &'static str },
}

/// All values of a model, to be read.
pub struct Values<'a, T = f32> {
    home: ReadGuard<'a, Storage<dyn ShardedValues>>,
    of: PhantomData<T>,
}

/// All values of a model, to be changed.
pub struct ValuesMut<'a, T = f32> {
    home: WriteGuard<'a, Storage<dyn ShardedValues>>,
    of: PhantomData<T>,
}

/// All gradients of a model, to be read or changed.
pub struct Gradients<'a, T = f32> {
    home: WriteGuard<'a, Storage<dyn ShardedGradients>>,
    of: PhantomData<T>,
}

impl<'a, T: Stored> Values<'a, T> {
    pub(super) fn new(
        home: ReadGuard<'a, Storage<dyn ShardedValues>>,
    ) -> Result<Values<'a, T>, NotHere> {
        numbers::<T, _>(&home, "values")?;
        Ok(Values { home, of: PhantomData })
    }
}

impl<'a, T: Stored> ValuesMut<'a, T> {
    pub(super) fn new(
        home: WriteGuard<'a, Storage<dyn ShardedValues>>,
    ) -> Result<ValuesMut<'a, T>, NotHere> {
        numbers::<T, _>(&home, "values")?;
        Ok(ValuesMut { home, of: PhantomData })
    }
}

impl<'a, T: Stored> Gradients<'a, T> {
    pub(super) fn new(
        home: WriteGuard<'a, Storage<dyn ShardedGradients>>,
    ) -> Result<Gradients<'a, T>, NotHere> {
        numbers::<T, _>(&home, "gradients")?;
        Ok(Gradients { home, of: PhantomData })
    }
}

/// The numbers of a storage, if they are on this rank and stored as `T`.
fn numbers<'a, T: Stored, S: ?Sized>(
    storage: &'a Storage<S>,
    name: &'static str,
) -> Result<&'a Vec<T>, NotHere> {
    match storage {
        Storage::Local(numbers) => {
            T::of(numbers).ok_or(NotHere::DifferentType { name, asked: type_name::<T>() })
        }
        Storage::Unallocated => Err(NotHere::Unallocated { name }),
        Storage::Sharded(_) => Err(NotHere::Sharded { name }),
    }
}

/// The same of a guard's storage: its constructor has looked, and nobody else can change it.
fn all<T: Stored, S: ?Sized>(storage: &Storage<S>) -> &Vec<T> {
    match storage {
        Storage::Local(numbers) => T::of(numbers),
        Storage::Unallocated | Storage::Sharded(_) => None,
    }
    .expect("a guard holds numbers of its type")
}

fn all_mut<T: Stored, S: ?Sized>(storage: &mut Storage<S>) -> &mut Vec<T> {
    match storage {
        Storage::Local(numbers) => T::of_mut(numbers),
        Storage::Unallocated | Storage::Sharded(_) => None,
    }
    .expect("a guard holds numbers of its type")
}

impl<T: Stored> Deref for Values<'_, T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        all(&self.home)
    }
}

impl<T: Stored> Deref for ValuesMut<'_, T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        all(&self.home)
    }
}

impl<T: Stored> DerefMut for ValuesMut<'_, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        all_mut(&mut self.home)
    }
}

impl<T: Stored> Deref for Gradients<'_, T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        all(&self.home)
    }
}

impl<T: Stored> DerefMut for Gradients<'_, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        all_mut(&mut self.home)
    }
}
