//! Memory that a training step frees stays with the process: the next step takes as much again.

/// Tells the C library's allocator to keep what is freed. It matters: a step allocates and frees the same few dozen MB,
/// and fetching them page by page from the kernel every time was measured at a third of the small GPT's step.
///
/// Only glibc is told; other allocators are left to their own rules. Tunables that the user has set come first.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed_memory() {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("GLIBC_TUNABLES").is_some() {
            return;
        }
        // The largest threshold that glibc takes; larger blocks are always mapped and unmapped.
        const LARGEST_MMAP_THRESHOLD: i32 = 32 << 20;
        // SAFETY: mallopt changes settings of the allocator under the allocator's own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD);
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
            // Threads' arenas consist of heaps of 64 MB, and only this keeps an empty one from being unmapped.
            libc::mallopt(libc::M_TOP_PAD, 128 << 20);
        }
    });
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed_memory() {}
