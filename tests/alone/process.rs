//! An allocator that also counts what all threads of the process allocate together.

use shardlab::allocator::Counting;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// The library's allocator, and a count of what goes through it.
pub struct CountingAll;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// Bytes that all threads together have allocated and not freed.
pub fn process_live() -> isize {
    LIVE.load(Relaxed)
}

/// The most bytes that were live in the process at one time, since [`reset_process_peak`].
pub fn process_peak() -> isize {
    PEAK.load(Relaxed)
}

/// Lets [`process_peak`] begin again with the bytes that are live now.
pub fn reset_process_peak() {
    PEAK.store(process_live(), Relaxed);
}

/// How often the process has allocated memory.
pub fn allocations() -> usize {
    ALLOCATIONS.load(Relaxed)
}

fn count(bytes: isize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
}

// SAFETY: every call goes on to `Counting`, with the same arguments.
unsafe impl GlobalAlloc for CountingAll {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { Counting.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { Counting.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { Counting.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { Counting.realloc(memory, layout, size) }
    }
}
