//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of the process so far.
pub static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are allocated now.
pub struct Bytes<T> {
    pub live: T,
    /// The most that was live since this was last set.
    pub peak: T,
}

/// Of the process.
pub static PROCESS: Bytes<AtomicIsize> = Bytes { live: AtomicIsize::new(0), peak: AtomicIsize::new(0) };

thread_local! {
    /// Of each thread: the test harness allocates on another one. What one thread frees for another may go below zero.
    pub static THREAD: Bytes<Cell<isize>> = const { Bytes { live: Cell::new(0), peak: Cell::new(0) } };
}

fn count(bytes: isize) {
    let live = PROCESS.live.fetch_add(bytes, Relaxed) + bytes;
    PROCESS.peak.fetch_max(live, Relaxed);
    THREAD.with(|thread| {
        thread.live.set(thread.live.get() + bytes);
        thread.peak.set(thread.peak.get().max(thread.live.get()));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; the counters need no set-up, and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}
