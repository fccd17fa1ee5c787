//! A rank that ends the whole process: `std::process::exit` in its closure. Such an end is an
//! error, whatever the exit code.
//!
//! The other ranks are in the middle of their work then. Nothing can stop the call, but the C
//! library runs [`at_exit`] before the process ends, on the thread that made the call.

use super::mpi;
use super::world::{World, world};
use crate::notice::complain;
use std::cell::Cell;
use std::sync::Once;

thread_local! {
    /// The rank whose closure this thread runs. It has no destructor, so it can be read while the
    /// process ends.
    static RANK: Cell<Option<usize>> = const { Cell::new(None) };
}

const WHAT: &str = "it ended the process instead of returning (std::process::exit?)\n\
                    help: return from the closure, with an error if there is one; the other ranks were not done";

/// Runs a rank's closure, which may not panic.
pub(super) fn watch<T>(rank: usize, body: impl FnOnce() -> T) -> T {
    static ONCE: Once = Once::new();
    // SAFETY: `at_exit` is a function, which exists as long as the process does.
    ONCE.call_once(|| _ = unsafe { libc::atexit(at_exit) });
    RANK.set(Some(rank));
    let result = body();
    RANK.set(None);
    result
}

extern "C" fn at_exit() {
    let Some(rank) = RANK.take() else { return };
    if let Ok(World::Mpi(world)) = world() {
        mpi::fail(world, &anyhow::anyhow!(WHAT));
    }
    complain(&format!("error: rank {rank} failed: {WHAT}"));
    // SAFETY: this call ends the process at once.
    unsafe { libc::_exit(1) }
}
