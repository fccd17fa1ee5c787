//! How this process takes memory from the kernel: what a training step frees is kept for the next
//! step, and large blocks lie in large pages.
//!
//! Both concern only glibc on Linux; other systems keep their own rules. What the user has set with
//! `GLIBC_TUNABLES` stays.

use bytemuck::Zeroable;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use glibc::keep_freed_memory;

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed_memory() {}

/// Zeros for as long as a model trains, in large pages where there are such.
pub(crate) fn zeros<T: Zeroable + Clone>(numbers: usize) -> Vec<T> {
    let zeros = vec![T::zeroed(); numbers];
    in_large_pages(&zeros);
    zeros
}

/// Asks for large pages where a large block of numbers lies. Pages that were written before stay
/// small; but the steps that follow get their memory beside this block.
pub(crate) fn in_large_pages<T>(block: &[T]) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::in_large_pages(block.as_ptr().addr(), size_of_val(block));
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = block;
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    /// Blocks from here on have a mapping of their own: the largest threshold that glibc accepts.
    const OWN_MAPPING: usize = 32 << 20;
    /// A thread's memory consists of heaps of this size, at multiples of it.
    const HEAP: usize = 64 << 20;
    /// What has only smaller blocks gains nothing.
    const LARGE: usize = 1 << 20;
    const SMALL_PAGE: usize = 4 << 10;

    /// Whether these are the allocator's settings.
    static SET: AtomicBool = AtomicBool::new(false);

    /// Makes the C library's allocator keep freed memory. Every step allocates and frees the same
    /// few dozen MB. Getting them page by page from the kernel every time took a third of the small
    /// GPT's step.
    pub fn keep_freed_memory() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            if std::env::var_os("GLIBC_TUNABLES").is_some() {
                return;
            }
            // SAFETY: mallopt changes settings of the allocator under the allocator's own lock.
            unsafe {
                libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING as i32);
                libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
                // Only this setting keeps glibc from unmapping an empty heap.
                libc::mallopt(libc::M_TOP_PAD, 128 << 20);
            }
            SET.store(true, Relaxed);
        });
    }

    /// A core remembers where some 2,000 pages are. In pages of 4 kB that is as much as its
    /// second-level cache holds, so it looks up nearly every row of a large matrix anew; in pages
    /// of 2 MB it knows the whole model's. Many systems give them only to those who ask.
    pub(super) fn in_large_pages(start: usize, bytes: usize) {
        /// The heaps that have been asked for, each where its number's remainder says.
        static ASKED: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
        if bytes < LARGE || !SET.load(Relaxed) {
            return;
        }
        if bytes >= OWN_MAPPING {
            let end = start + bytes;
            let start = start.next_multiple_of(SMALL_PAGE);
            ask(start, end - start);
            return;
        }
        let heap = start / HEAP;
        if ASKED[heap % ASKED.len()].swap(heap, Relaxed) != heap {
            ask(heap * HEAP, HEAP);
        }
    }

    fn ask(start: usize, bytes: usize) {
        // SAFETY: this advice changes no byte. Nothing is advised where nothing is mapped, and a
        // kernel without large pages refuses.
        unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE) };
    }

    #[cfg(test)]
    mod tests {
        use super::super::zeros;
        use super::*;

        /// Whether the kernel was asked for large pages at this address; `None` if it has none.
        fn asked_at(address: usize) -> Option<bool> {
            let mappings = std::fs::read_to_string("/proc/self/smaps").ok()?;
            let mut here = false;
            for line in mappings.lines() {
                let range = line.split(' ').next().and_then(|word| word.split_once('-'));
                let range = range.map(|(start, end)| {
                    [start, end].map(|digits| usize::from_str_radix(digits, 16))
                });
                match range {
                    Some([Ok(start), Ok(end)]) => here = (start..end).contains(&address),
                    _ if here && line.starts_with("VmFlags:") => return Some(line.contains(" hg")),
                    _ => {}
                }
            }
            None
        }

        #[test]
        fn large_blocks_ask_and_small_ones_do_not() {
            let large_pages = "/sys/kernel/mm/transparent_hugepage/enabled";
            let is_set = std::env::var_os("GLIBC_TUNABLES").is_some();
            if is_set || !std::path::Path::new(large_pages).exists() {
                return;
            }
            keep_freed_memory();
            // A thread of its own has heaps of its own.
            std::thread::spawn(|| {
                // Another test may have used this heap before.
                let small = vec![0f32; 1000];
                let before = asked_at(small.as_ptr().addr());
                super::super::in_large_pages(&small);
                assert_eq!(asked_at(small.as_ptr().addr()), before);
                let of_a_heap = zeros::<f32>(LARGE / 4);
                let of_its_own = zeros::<f32>(OWN_MAPPING / 4);
                for block in [&of_a_heap, &of_its_own] {
                    let middle = block.as_ptr().addr() + size_of_val(&block[..]) / 2;
                    assert_eq!(asked_at(middle), Some(true), "{} numbers", block.len());
                }
            })
            .join()
            .unwrap();
        }
    }
}
