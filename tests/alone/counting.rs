//! An allocator that counts. A program that declares this module has it: these tests, the benchmark of a step, and the program
//! beside the page on memory.

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

/// The bytes of the process.
pub static PROCESS: Bytes<AtomicIsize> = Bytes {
    live: AtomicIsize::new(0),
    peak: AtomicIsize::new(0),
};

thread_local! {
    /// The bytes of each thread. If one thread frees memory for a different thread, its count may go below zero.
    pub static THREAD: Bytes<Cell<isize>> = const { Bytes { live: Cell::new(0), peak: Cell::new(0) } };
}

/// Bytes that this thread has allocated.
pub fn live() -> isize {
    THREAD.with(|thread| thread.live.get())
}

/// Bytes of this thread above those that were live before, at the highest point of `work`.
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = live();
    THREAD.with(|thread| thread.peak.set(before));
    let result = work();
    (
        THREAD.with(|thread| thread.peak.get() - before) as usize,
        result,
    )
}

fn count(bytes: isize) {
    let live = PROCESS.live.fetch_add(bytes, Relaxed) + bytes;
    PROCESS.peak.fetch_max(live, Relaxed);
    // A thread that ends has no counter any more, and may still free memory.
    let _ = THREAD.try_with(|thread| {
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

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}
