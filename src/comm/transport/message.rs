//! The memory of a message on its way.
//!
//! A message belongs to no rank. Its sender makes it, its receiver frees it or keeps it for the
//! next message, and which rank does what is a matter of time. So the memory comes from the
//! system's allocator directly: an allocator that counts each rank's bytes (`labs/tools/memory`,
//! the tests) sees what the ranks hold, the same in every run, and no messages.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// The bytes of a message.
pub(super) struct Message {
    memory: NonNull<u8>,
    /// Bytes of the memory, and of the message in it.
    capacity: usize,
    len: usize,
}

// SAFETY: a message owns its memory, as a `Vec<u8>` does.
unsafe impl Send for Message {}

impl Message {
    /// Memory for a message of `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Message {
        // The allocator has no memory of 0 bytes.
        let capacity = capacity.max(1);
        let layout = layout(capacity);
        // SAFETY: the layout has at least one byte.
        let memory = NonNull::new(unsafe { System.alloc(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        Message { memory, capacity, len: 0 }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Overwrites the message with `data`, which must not be longer than the memory.
    pub fn fill(&mut self, data: &[u8]) {
        assert!(data.len() <= self.capacity);
        // SAFETY: the memory has room for `data`, and nobody else has a reference to it.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.memory.as_ptr(), data.len()) };
        self.len = data.len();
    }
}

impl Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `fill` has written the first `len` bytes.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the memory came from this allocator, with this layout.
        unsafe { System.dealloc(self.memory.as_ptr(), layout(self.capacity)) };
    }
}

/// Elements of any type may lie there.
fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, align_of::<u64>()).expect("a message was in memory already")
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// The pages of this process that are in memory.
    fn resident() -> usize {
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        sizes.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// The transport's memory is the system's, which this crate's allocator does not count.
    #[test]
    fn a_message_gives_its_memory_back() {
        const BYTES: usize = 1 << 20;
        let data = vec![1; BYTES];
        let before = resident();
        for _ in 0..2048 {
            Message::with_capacity(BYTES).fill(&data);
        }
        let taken = resident().saturating_sub(before);
        // A page has at least 4 KiB, so all messages have half a million of them at most.
        assert!(taken < 100_000, "{taken} pages are still there");
    }
}
