//! An allocator that counts the bytes of each thread, as PyTorch counts those of each GPU.
//!
//! A program that wants the figures installs it. In all other programs they are 0.
//!
//! ```
//! use shardlab::allocator::{Counting, live, peak_of};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let before = live();
//! let numbers = vec![0f32; 1000];
//! assert_eq!(live() - before, 4000);
//! let (peak, sum) = peak_of(|| vec![1u8; 500].len() + numbers.len());
//! assert_eq!((peak, sum), (500, 1500));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, and a count of what goes through it.
pub struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static SCRATCH: Cell<isize> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated and not freed. Below zero if it has freed memory of other
/// threads.
pub fn live() -> isize {
    LIVE.get()
}

/// The most bytes that were live in this thread at one time, since [`reset_peak`]. Scratch is not
/// among them.
pub fn peak() -> isize {
    PEAK.get()
}

/// The most bytes that one matrix product of this thread has held for itself, since
/// [`reset_peak`]: copies of its factors, as many as its blocks are large on this processor.
pub fn scratch() -> isize {
    SCRATCH.get()
}

/// Lets [`peak`] begin again with the bytes that are live now, and [`scratch`] with none.
pub fn reset_peak() {
    PEAK.set(live());
    SCRATCH.set(0);
}

/// Bytes of this thread above those that were live before, at the highest point of `work`; and what
/// `work` returns.
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = live();
    reset_peak();
    let result = work();
    ((peak() - before) as usize, result)
}

/// Counts what `product` allocates and frees again as scratch, and not in [`peak`].
pub(crate) fn apart<R>(product: impl FnOnce() -> R) -> R {
    let before = live();
    let peak = PEAK.replace(before);
    let result = product();
    // What is left is a result.
    let after = live();
    SCRATCH.set(scratch().max(PEAK.get() - before.max(after)));
    PEAK.set(peak.max(after));
    result
}

fn count(bytes: isize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call goes to the system's allocator unchanged. The counters are constants at first
// and have no destructor, so counting allocates nothing, and works in threads that are ending.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
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
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}
