//! Which of MPI's operations a reduction is.
//!
//! The minimum and maximum of floats and of unsigned integers are ours, with one result in any
//! order: a NaN wins, and 0.0 is above -0.0. MPI's own keep a NaN or lose it, and take either of
//! two zeros, as their library compares them, in an order of its own: ranks can end with different
//! bits. The MPICH 4.0.2 of Debian 12 compares unsigned integers as if they were signed.

use crate::comm::element::{Element, Reduce};
use mpi::collective::{Operation, SystemOperation, UnsafeUserOperation};
use mpi::ffi::{MPI_Datatype, MPI_Op};
use mpi::raw::AsRaw;
use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::slice;

/// An operation of MPI's.
#[derive(Clone, Copy)]
pub(super) struct InMpi(MPI_Op);

// SAFETY: MPI made it, and it is never freed.
unsafe impl AsRaw for InMpi {
    type Raw = MPI_Op;

    fn as_raw(&self) -> MPI_Op {
        self.0
    }
}

impl Operation for InMpi {}

impl InMpi {
    /// The operation for numbers of type `W`. A mean is a sum there, which `Mpi::divide` divides.
    pub fn of<W: 'static>(op: Reduce) -> InMpi {
        let ours: [(TypeId, [Function; 2]); 4] = [
            (TypeId::of::<f32>(), [extreme::<f32, false>, extreme::<f32, true>]),
            (TypeId::of::<f64>(), [extreme::<f64, false>, extreme::<f64, true>]),
            (TypeId::of::<u64>(), [extreme::<u64, false>, extreme::<u64, true>]),
            (TypeId::of::<u8>(), [extreme::<u8, false>, extreme::<u8, true>]),
        ];
        let ours = ours.into_iter().find(|(id, _)| *id == TypeId::of::<W>());
        let system = match (op, ours) {
            (Reduce::Sum | Reduce::Mean, _) => SystemOperation::sum(),
            (Reduce::Prod, _) => SystemOperation::product(),
            (Reduce::Min, Some((_, [min, _]))) => return made(min),
            (Reduce::Max, Some((_, [_, max]))) => return made(max),
            (Reduce::Min, None) => SystemOperation::min(),
            (Reduce::Max, None) => SystemOperation::max(),
        };
        InMpi(system.as_raw())
    }
}

type Function = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut MPI_Datatype);

/// The operation that `function` computes, made the first time.
fn made(function: Function) -> InMpi {
    thread_local! {
        static MADE: RefCell<HashMap<usize, MPI_Op>> = RefCell::default();
    }
    MADE.with_borrow_mut(|made| {
        let operation = made.entry(function as usize).or_insert_with(|| {
            // SAFETY: it is used for numbers of the function's type alone, in any order.
            let operation = unsafe { UnsafeUserOperation::commutative(function) };
            let raw = operation.as_raw();
            // To the end of MPI, which comes before that of this thread's variables.
            std::mem::forget(operation);
            raw
        });
        InMpi(*operation)
    })
}

/// The larger or smaller number of each pair.
///
/// # Safety
/// MPI calls it with two vectors of `T`, as long as `length` says.
unsafe extern "C" fn extreme<T: Element<Wide = T>, const LARGEST: bool>(
    from: *mut c_void,
    to: *mut c_void,
    length: *mut c_int,
    _: *mut MPI_Datatype,
) {
    let op = if LARGEST { Reduce::Max } else { Reduce::Min };
    // SAFETY: see above; MPI's vectors are aligned as their type asks.
    let (from, to) = unsafe {
        let length = *length as usize;
        let from = slice::from_raw_parts(from.cast::<T>(), length);
        (from, slice::from_raw_parts_mut(to.cast::<T>(), length))
    };
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::combine(op, *from, *to);
    }
}
