//! What the in-process transport is made of: locks, condition variables, atomics, threads.
//!
//! From the standard library; with the feature `shuttle` from the crate of that name, which runs the ranks one at a time
//! and chooses at each of these who goes on, so that tests try thousands of orders (`launch/explored.rs`). Built so, ranks work
//! in those tests alone.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::atomic,
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::atomic,
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

/// A thread of a scope, with a name and a stack of its own.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<thread::ScopedJoinHandle<'scope, T>> {
    thread::Builder::new().name(name).stack_size(stack_bytes).spawn_scoped(scope, body)
}

/// A thread of a scope; shuttle gives all the same stack.
#[cfg(feature = "shuttle")]
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    _name: String,
    _stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<thread::ScopedJoinHandle<'scope, T>> {
    Ok(scope.spawn(body))
}

#[cfg(feature = "shuttle")]
thread_local! {
    /// Whether ranks stay in a collective until all have done their part. A test leaves that out, to see that it is missed.
    pub(crate) static LAST_BARRIER: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
}

/// Whether ranks stay in a collective until all have done their part.
pub(super) fn last_barrier() -> bool {
    #[cfg(feature = "shuttle")]
    return LAST_BARRIER.get();
    #[cfg(not(feature = "shuttle"))]
    true
}

/// Whether a thread that waits for another may spin for a moment: only where each can have a core of its own.
pub(super) fn may_spin(threads: usize) -> bool {
    !cfg!(feature = "shuttle") && threads <= std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether time passes: shuttle tries orders, and has no clock.
pub(super) fn has_clock() -> bool {
    !cfg!(feature = "shuttle")
}
