//! Requests that the MPI library works on, and the memory that it uses meanwhile.

use mpi::request::{Request, StaticScope};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether requests were dropped before they were complete.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Whether the library may still be working on requests that nobody waits for, as after a failure.
/// It then needs their communicators: Open MPI 4.1 crashes if one is freed before its duplicate is
/// complete.
pub(super) fn is_abandoned() -> bool {
    ABANDONED.load(Relaxed)
}

/// Requests for data of type `D`, and their memory. If it is dropped before they are complete, both
/// stay with the process.
pub(super) struct Posted<D: ?Sized + 'static, M> {
    requests: Vec<Request<'static, D, StaticScope>>,
    memory: *mut M,
}

// SAFETY: the requests are raw handles of the MPI library. They are used only on the MPI thread, as
// is all that contains them (see `Mpi`), and a drop elsewhere frees nothing.
unsafe impl<D: ?Sized, M: Send> Send for Posted<D, M> {}

impl<D: ?Sized, M: 'static> Posted<D, M> {
    /// `post` hands `memory` to the library and keeps no reference to it.
    pub fn new(
        memory: M,
        post: impl FnOnce(&'static mut M) -> Vec<Request<'static, D, StaticScope>>,
    ) -> Posted<D, M> {
        let memory = Box::into_raw(Box::new(memory));
        // SAFETY: the box lives until `take` has seen all requests complete, and no other code
        // touches it before.
        Posted { requests: post(unsafe { &mut *memory }), memory }
    }

    /// Lets the library work. Returns whether all requests are complete.
    pub fn test(&mut self) -> bool {
        for request in std::mem::take(&mut self.requests) {
            self.requests.extend(request.test().err());
        }
        self.requests.is_empty()
    }

    pub fn wait(&mut self) {
        for request in self.requests.drain(..) {
            _ = request.wait();
        }
    }

    /// The memory, once all requests are complete.
    pub fn take(self) -> M {
        assert!(self.requests.is_empty(), "the library still uses the memory");
        // SAFETY: the pointer came from `Box::into_raw`, and the library is done with it.
        *unsafe { Box::from_raw(self.memory) }
    }
}

impl<D: ?Sized, M> Drop for Posted<D, M> {
    fn drop(&mut self) {
        ABANDONED.fetch_or(!self.requests.is_empty(), Relaxed);
        // rsmpi panics if a request is dropped before it is complete.
        for request in self.requests.drain(..) {
            std::mem::forget(request);
        }
    }
}
