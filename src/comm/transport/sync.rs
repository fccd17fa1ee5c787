//! The parts of the in-process transport: locks, condition variables, atomics, threads.
//!
//! They come from the standard library, or with the feature `shuttle` from the crate of that name.
//! Shuttle runs the ranks one at a time and chooses at each lock and atomic which rank continues,
//! so that tests try thousands of orders (`launch/tests/explored.rs`). With this feature ranks work
//! only in those tests.

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

/// Starts a thread in a scope, with a name and a stack size. Shuttle gives all threads the same
/// stack size, and no name.
#[cfg_attr(feature = "shuttle", expect(unused_variables))]
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<thread::ScopedJoinHandle<'scope, T>> {
    #[cfg(not(feature = "shuttle"))]
    return thread::Builder::new()
        .name(name)
        .stack_size(stack_bytes)
        .spawn_scoped(scope, body);
    #[cfg(feature = "shuttle")]
    Ok(scope.spawn(body))
}

#[cfg(feature = "shuttle")]
thread_local! {
    /// Whether ranks stay in a collective until all have done their part. A test turns it off, to
    /// see that the failure is found.
    pub(crate) static LAST_BARRIER: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
}

/// Whether ranks stay in a collective until all have done their part.
pub(super) fn last_barrier() -> bool {
    #[cfg(feature = "shuttle")]
    return LAST_BARRIER.get();
    #[cfg(not(feature = "shuttle"))]
    true
}

/// Whether waiting threads may spin for a short time: only if each thread can have its own core.
pub(super) fn may_spin(threads: usize) -> bool {
    !cfg!(feature = "shuttle") && threads <= cores()
}

/// The cores that ranks of this process can run on at the same time.
pub fn cores() -> usize {
    #[cfg(not(target_family = "wasm"))]
    return std::thread::available_parallelism().map_or(1, usize::from);
    // The page says how many workers it can run at once.
    #[cfg(target_family = "wasm")]
    std::env::var("SHARDLAB_CORES")
        .ok()
        .and_then(|cores| cores.parse().ok())
        .unwrap_or(1)
}

/// Whether there is a clock. Shuttle has none.
pub(super) fn has_clock() -> bool {
    !cfg!(feature = "shuttle")
}
