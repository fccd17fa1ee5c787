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
pub type Values<'a, T = f32> = FlatGuard<ReadGuard<'a, Storage<dyn ShardedValues>>, T>;

/// All values of a model, to be changed.
pub type ValuesMut<'a, T = f32> = FlatGuard<WriteGuard<'a, Storage<dyn ShardedValues>>, T>;

/// All gradients of a model, to be read or changed.
pub type Gradients<'a, T = f32> = FlatGuard<WriteGuard<'a, Storage<dyn ShardedGradients>>, T>;

/// A guard `H` of a storage whose numbers are on this rank, stored as `T`. Its constructor has
/// looked, and nobody else can change that.
pub struct FlatGuard<H, T> {
    home: H,
    of: PhantomData<T>,
}

impl<H: Deref<Target = Storage<S>>, S: ?Sized + 'static, T: Stored> FlatGuard<H, T> {
    /// The storage's numbers. An error calls them `name`.
    pub(super) fn new(
        home: Result<H, StillHeld>,
        name: &'static str,
    ) -> Result<FlatGuard<H, T>, NotHere> {
        let home = home?;
        match &*home {
            Storage::Local(numbers) if T::of(numbers).is_some() => {
                Ok(FlatGuard { home, of: PhantomData })
            }
            Storage::Local(_) => Err(NotHere::DifferentType { name, asked: type_name::<T>() }),
            Storage::Unallocated => Err(NotHere::Unallocated { name }),
            Storage::Sharded(_) => Err(NotHere::Sharded { name }),
        }
    }
}

impl<H: Deref<Target = Storage<S>>, S: ?Sized + 'static, T: Stored> Deref for FlatGuard<H, T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        match &*self.home {
            Storage::Local(numbers) => T::of(numbers),
            Storage::Unallocated | Storage::Sharded(_) => None,
        }
        .expect("a guard holds numbers of its type")
    }
}

impl<H: DerefMut<Target = Storage<S>>, S: ?Sized + 'static, T: Stored> DerefMut
    for FlatGuard<H, T>
{
    fn deref_mut(&mut self) -> &mut Vec<T> {
        match &mut *self.home {
            Storage::Local(numbers) => T::of_mut(numbers),
            Storage::Unallocated | Storage::Sharded(_) => None,
        }
        .expect("a guard holds numbers of its type")
    }
}
