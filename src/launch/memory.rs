//! The process keeps the memory that a training step frees: the next step needs as much again.

/// Makes the C library's allocator keep freed memory. Every step allocates and frees the same few
/// dozen MB. Getting them page by page from the kernel every time took a third of the small GPT's
/// step.
///
/// This concerns only glibc; other allocators keep their own rules. What the user has set stays.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed_memory() {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("GLIBC_TUNABLES").is_some() {
            return;
        }
        // The largest threshold that glibc accepts. Larger blocks are always mapped and unmapped.
        const LARGEST_MMAP_THRESHOLD: i32 = 32 << 20;
        // SAFETY: mallopt changes settings of the allocator under the allocator's own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD);
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
            // A thread's arena consists of heaps of 64 MB. Only this setting keeps glibc from
            // unmapping an empty heap.
            libc::mallopt(libc::M_TOP_PAD, 128 << 20);
        }
    });
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed_memory() {}
