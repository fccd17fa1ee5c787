//! An allocator that counts.

pub use shardlab::heap::{ALLOCATIONS, PROCESS};

#[global_allocator]
static COUNTING: shardlab::heap::Counting = shardlab::heap::Counting;
