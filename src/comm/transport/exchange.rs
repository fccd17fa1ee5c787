//! Slices that the ranks of one collective share. The unsafe code of the in-process transport is
//! here and in `message.rs`.
//!
//! A send copies nothing. Every rank publishes where its slice is, and once all ranks have, they
//! read each other's slices in place. A reduction cuts the vector into blocks. Each rank takes the
//! next free block, adds it up over all slices in rank order, and writes the sum to all of them. So
//! each number is read once and written once, and the bits do not depend on which rank did the
//! work.
//!
//! Each rank goes through the same states: publish, all published, work, all done, retire. Why that
//! is sound:
//!
//! 1. No rank touches a slice before all ranks have published theirs ([`Exchange::all_published`]).
//!    That moment is the last of n additions to `published`, which acquires what the others
//!    released: all slots are filled and visible.
//! 2. Before that moment a rank may withdraw its slice ([`Exchange::withdraw`]). Then `published`
//!    never grows again, so the moment never comes. After it no rank may withdraw. Each does its
//!    part, which waits for no other rank and cannot fail, and waits until all parts are done
//!    ([`Exchange::all_done`]). So a slice lives as long as any rank touches it. A panic in between
//!    ends the process.
//! 3. Slices of [`SharedSlice::Read`] are published for reading: all ranks read, and none writes.
//!    Slices of [`SharedSlice::Reduce`] and owned vectors are published for writing: `taken` gives
//!    each block to one rank, which alone touches that block, in all slices, until it is done. In
//!    [`Exchange::deliver`] a block is a range that is only read, of one vector, and a range of
//!    another one or the same that no other block touches.
//! 4. A vector that is published with its ownership ([`Exchange::publish_owned`]) belongs to the
//!    exchange. Its rank reclaims it when all blocks are done ([`Exchange::reclaim`]); otherwise it
//!    lives as long as the exchange.
//! 5. `done` releases what was written, and the rank that sees the last part done acquires it.

use super::Buffer;
use super::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use super::sync::last_barrier;
use crate::comm::call::{Call, CallKind};
use crate::comm::element::{Parts, all_reduce_in_rank_order, copy_to_all};
use crate::comm::meter::{even_part, lock};
use crate::comm::uneven::Counts;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes of a block. A block of a small vector is one rank's part; two large blocks fit into a
/// core's second-level cache.
const BLOCK_BYTES: Range<usize> = 1 << 12..1 << 16;

/// A bit of `published`: a rank has withdrawn its slice.
const WITHDRAWN: usize = 1 << (usize::BITS - 1);

#[derive(Default)]
pub(super) struct Exchange {
    slots: Box<[Slot]>,
    /// Ranks that have published their slices.
    published: AtomicUsize,
    /// Parts of the work that are done: blocks of a reduction, or one per rank.
    done: AtomicUsize,
    /// Ranks that sleep until all parts are done.
    asleep: AtomicUsize,
    /// Ranks that will not use the exchange again.
    retired: AtomicUsize,
}

/// A slice that a rank shares, and the work on it.
pub(super) enum SharedSlice<'a> {
    /// All ranks read it. The function does this rank's part of the work.
    Read(&'a [u8], &'a mut dyn FnMut(&Shared)),
    /// The ranks share the work of the call, an all-reduce or a reduce. All ranks' slices are
    /// equally long.
    Reduce(&'a mut [u8], &'a Call),
}

/// The slice that one rank has published.
#[derive(Default)]
struct Slot {
    /// The first byte; null until the rank publishes its slice.
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// Whether the slice is published for writing.
    writable: AtomicBool,
    /// Blocks of this rank's part that ranks have taken, or tried to take.
    taken: AtomicUsize,
    /// Bytes of this rank's memory that were copied to other ranks' memory, or added up there,
    /// whichever rank did that.
    sent: AtomicU64,
    /// The vector, if it was published with its ownership.
    owned: Mutex<Option<Box<dyn Buffer>>>,
}

impl Exchange {
    pub fn new(ranks: usize) -> Exchange {
        Exchange {
            slots: (0..ranks).map(|_| Slot::default()).collect(),
            ..Exchange::default()
        }
    }

    pub fn ranks(&self) -> usize {
        self.slots.len()
    }

    /// Whether `rank` has published its slice.
    pub fn has_published(&self, rank: usize) -> bool {
        !self.slots[rank].start.load(Relaxed).is_null()
    }

    /// Whether all ranks have published their slices.
    pub fn all_published(&self) -> bool {
        self.published.load(Acquire) == self.ranks()
    }

    /// Takes a published slice back. Returns false if all ranks have published theirs; then the
    /// rank must continue.
    fn withdraw(&self) -> bool {
        let withdraw = |published| (published != self.ranks()).then_some(published | WITHDRAWN);
        self.published.fetch_update(AcqRel, Acquire, withdraw).is_ok()
    }

    fn publish(&self, rank: usize, start: *mut u8, bytes: usize, writable: bool) {
        let slot = &self.slots[rank];
        assert!(slot.start.load(Relaxed).is_null(), "a rank publishes once");
        slot.bytes.store(bytes, Relaxed);
        slot.writable.store(writable, Relaxed);
        slot.start.store(start, Relaxed);
        self.published.fetch_add(1, AcqRel);
    }

    /// Shares a slice with the other ranks. `wait_all_published` returns when all ranks have
    /// published theirs, or an error. Then this rank does its part of the work, and `wait_all_done`
    /// returns when so many parts are done. Over time, the slice may be touched by:
    ///
    /// ```text
    /// publish    wait_all_published        work               wait_all_done     return
    /// ├─ this rank has published ┼─ all have: each reads it, ┼─ this rank is done ┼─ all are done
    /// │  it; no rank touches it, │  or writes the blocks it  │  and others may    │  this rank
    /// │  and it may be withdrawn │  has taken; no way back   │  still touch it    │  alone again
    /// ```
    pub fn share<E>(
        &self,
        rank: usize,
        mut slice: SharedSlice,
        wait_all_published: impl FnOnce() -> Result<(), E>,
        wait_all_done: impl FnOnce(usize),
    ) -> Result<(), E> {
        /// Ends the process if a panic would take a slice away from ranks that are touching it.
        struct Published<'a>(&'a Exchange);
        impl Drop for Published<'_> {
            fn drop(&mut self) {
                if !self.0.withdraw() {
                    eprintln!(
                        "a panic inside a collective: other ranks are reading this one's memory"
                    );
                    std::process::abort();
                }
            }
        }
        let (start, bytes, parts) = match &mut slice {
            SharedSlice::Read(mine, _) => (mine.as_ptr().cast_mut(), mine.len(), self.ranks()),
            SharedSlice::Reduce(mine, _) => {
                (mine.as_mut_ptr(), mine.len(), self.blocks(mine.len()))
            }
        };
        let guard = Published(self);
        self.publish(rank, start, bytes, matches!(slice, SharedSlice::Reduce(..)));
        let result = wait_all_published();
        if result.is_err() && self.withdraw() {
            std::mem::forget(guard);
            return result;
        }
        assert!(self.all_published());
        match slice {
            SharedSlice::Read(_, work) => {
                assert!(self.slots.iter().all(|slot| !slot.writable.load(Relaxed)));
                work(&Shared { exchange: self, reader: rank });
                self.done.fetch_add(1, SeqCst);
            }
            SharedSlice::Reduce(_, call) => self.work(rank, call, bytes, usize::MAX),
        }
        if last_barrier() {
            wait_all_done(parts);
            assert!(self.all_done(parts));
        }
        std::mem::forget(guard);
        result
    }

    /// Publishes a vector with its ownership, for [`Exchange::work`] or [`Exchange::deliver`].
    pub fn publish_owned(&self, rank: usize, mut vector: Box<dyn Buffer>) {
        let bytes = vector.bytes_mut();
        let start = bytes.as_mut_ptr();
        let bytes = bytes.len();
        *lock(&self.slots[rank].owned) = Some(vector);
        self.publish(rank, start, bytes, true);
    }

    /// The bytes that `rank` has sent, once all parts are done.
    pub fn sent(&self, rank: usize) -> u64 {
        self.slots[rank].sent.load(Relaxed)
    }

    fn count(&self, from: usize, bytes: usize) {
        self.slots[from].sent.fetch_add(bytes as u64, Relaxed);
    }

    /// Returns `rank`'s vector to it when all `parts` of the work are done.
    pub fn reclaim(&self, rank: usize, parts: usize) -> Box<dyn Buffer> {
        assert!(self.all_published() && self.all_done(parts));
        lock(&self.slots[rank].owned)
            .take()
            .expect("a rank reclaims once what it has published")
    }

    /// Bytes of a block, in a vector of `bytes` bytes.
    fn block(&self, bytes: usize) -> usize {
        let part = bytes.div_ceil(self.ranks()).next_multiple_of(64);
        part.clamp(BLOCK_BYTES.start, BLOCK_BYTES.end)
    }

    /// The number of blocks in a vector of `bytes` bytes.
    pub fn blocks(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.block(bytes))
    }

    /// Whether so many parts are done: [`Exchange::blocks`] of a reduction, or one per rank.
    pub fn all_done(&self, parts: usize) -> bool {
        self.done.load(SeqCst) == parts
    }

    /// Once all ranks have published, `rank` does up to `most` of the free blocks. It begins with
    /// its own part of the vector, the same part every time, which may still be in its core's
    /// cache.
    pub fn work(&self, rank: usize, call: &Call, bytes: usize, most: usize) {
        let fits = |slot: &Slot| slot.writable.load(Relaxed) && slot.bytes.load(Relaxed) == bytes;
        assert!(self.all_published() && self.slots.iter().all(fits));
        let block = self.block(bytes);
        self.take(rank, self.blocks(bytes), most, |number| {
            self.work_on(call, bytes, number * block..bytes.min((number + 1) * block));
        });
    }

    /// [`Exchange::work`] in an all-to-all with unequal parts, in which a block is what one rank
    /// sends to one. Each rank's vector has what it sends, and then room for what it gets.
    pub fn deliver(&self, rank: usize, call: &Call, counts: &Counts, most: usize) {
        let ranks = self.ranks();
        let size = call.dtype.size();
        assert!(
            self.all_published()
                && (0..ranks).all(|rank| {
                    let slot = &self.slots[rank];
                    slot.writable.load(Relaxed)
                        && slot.bytes.load(Relaxed) == counts.room(rank).end * size
                })
        );
        self.take(rank, ranks * ranks, most, |number| {
            let [to, from] = [number / ranks, number % ranks];
            let part = counts.part(from, to);
            let place = counts.room(to).start + counts.place(from, to).start;
            let [source, target] = [from, to].map(|rank| self.slots[rank].start.load(Relaxed));
            // SAFETY: all ranks have published vectors of the lengths that the counts add up to,
            // which live until all blocks are done (2 and 4 above). What a rank sends is only read,
            // and this block's place is no other's (3).
            unsafe {
                let source = source.add(part.start * size);
                source.copy_to_nonoverlapping(target.add(place * size), part.len() * size);
            }
            if from != to {
                self.count(from, part.len() * size);
            }
        });
    }

    /// `rank` works on up to `most` of the free blocks, by their numbers. Its own part of them
    /// comes first.
    fn take(&self, rank: usize, blocks: usize, most: usize, work: impl Fn(usize)) {
        let ranks = self.ranks();
        let mut left = most;
        for part in (rank..rank + ranks).map(|part| part % ranks) {
            let numbers = even_part(blocks, part, ranks);
            while left > 0 {
                let number = numbers.start + self.slots[part].taken.fetch_add(1, Relaxed);
                if number >= numbers.end {
                    break;
                }
                work(number);
                self.done.fetch_add(1, SeqCst);
                left -= 1;
            }
        }
    }

    /// Works on one block, which `work` has taken: `range` of all vectors, which have `bytes`
    /// bytes.
    fn work_on(&self, call: &Call, bytes: usize, range: Range<usize>) {
        let reduce = |home, into, range| {
            let op = call.op();
            let mut block = SharedBlock { exchange: self, range };
            by_type!(call.dtype, T => all_reduce_in_rank_order::<T>(op, home, into, &mut block))
        };
        let kind = call.kind.collective();
        if let (CallKind::Reduce, Some(root)) = (kind, call.peer) {
            return reduce(root.rank, root.rank..root.rank + 1, range);
        }
        // A vector has one part per rank, and a block may overlap several parts. The parts of an
        // all-reduce only say which rank sends the result.
        let ranks = self.ranks();
        let size = call.dtype.size();
        for rank in 0..ranks {
            let part = even_part(bytes / size, rank, ranks);
            let range = range.start.max(part.start * size)..range.end.min(part.end * size);
            if range.is_empty() {
                continue;
            }
            match kind {
                CallKind::AllReduce => reduce(rank, 0..ranks, range),
                CallKind::ReduceScatter => reduce(rank, rank..rank + 1, range),
                _ => copy_to_all(rank, &mut SharedBlock { exchange: self, range }),
            }
        }
    }

    /// A rank goes to sleep until all parts are done.
    pub fn begin_sleep(&self) {
        self.asleep.fetch_add(1, SeqCst);
    }

    pub fn end_sleep(&self) {
        self.asleep.fetch_sub(1, SeqCst);
    }

    /// Whether a rank sleeps until all parts are done. A rank that does a part asks this
    /// afterwards. A rank that falls asleep checks afterwards whether all parts are done. So one of
    /// the two sees the other.
    pub fn has_sleepers(&self) -> bool {
        self.asleep.load(SeqCst) > 0
    }

    /// Each rank calls this when it will not use the exchange again. Returns whether it was the
    /// last rank; then the exchange can be used again.
    pub fn retire(&self) -> bool {
        if self.retired.fetch_add(1, AcqRel) + 1 < self.ranks() {
            return false;
        }
        for slot in &self.slots {
            slot.start.store(std::ptr::null_mut(), Relaxed);
            slot.taken.store(0, Relaxed);
            slot.sent.store(0, Relaxed);
        }
        for counter in [&self.published, &self.done, &self.retired] {
            counter.store(0, Relaxed);
        }
        true
    }
}

/// All ranks' slices, for one of them to read.
pub(super) struct Shared<'a> {
    exchange: &'a Exchange,
    reader: usize,
}

impl Shared<'_> {
    /// These bytes of the slice of `rank`. They count as sent by it, unless it is the reader
    /// itself.
    pub fn read(&self, rank: usize, range: Range<usize>) -> &[u8] {
        let slot = &self.exchange.slots[rank];
        // SAFETY: a `Shared` exists only in `Exchange::share`, after all ranks have published
        // slices for reading (1 and 3 above). The slices live until all ranks have dropped their
        // `Shared` (2).
        let slice = unsafe {
            std::slice::from_raw_parts(slot.start.load(Relaxed), slot.bytes.load(Relaxed))
        };
        if rank != self.reader {
            self.exchange.count(rank, range.len());
        }
        &slice[range]
    }
}

/// One block of all ranks' slices.
struct SharedBlock<'a> {
    exchange: &'a Exchange,
    range: Range<usize>,
}

impl SharedBlock<'_> {
    /// # Safety
    /// The caller must not have the same rank's slice already.
    #[allow(clippy::mut_from_ref, reason = "the caller guarantees it")]
    unsafe fn slice(&self, rank: usize) -> &mut [u8] {
        let slot = &self.exchange.slots[rank];
        // SAFETY: a `SharedBlock` exists only in `Exchange::work`, after all ranks have published
        // slices for writing, whose lengths were compared there (1 and 3 above). This block, or the
        // block that it is a part of, belongs to this rank alone until it is done. The slices live
        // until all blocks are done (2 and 4).
        unsafe {
            std::slice::from_raw_parts_mut(
                slot.start.load(Relaxed).add(self.range.start),
                self.range.len(),
            )
        }
    }
}

impl Parts for SharedBlock<'_> {
    fn ranks(&self) -> usize {
        self.exchange.ranks()
    }

    fn bytes(&self) -> usize {
        self.range.len()
    }

    fn of(&mut self, rank: usize) -> &mut [u8] {
        // SAFETY: see `SharedBlock::slice`. `self` stays borrowed, so no other slice exists
        // meanwhile.
        unsafe { self.slice(rank) }
    }

    fn two(&mut self, [a, b]: [usize; 2]) -> [&mut [u8]; 2] {
        assert_ne!(a, b);
        // SAFETY: see `SharedBlock::slice`. Two ranks' slices do not overlap, because both were
        // published for writing.
        unsafe { [self.slice(a), self.slice(b)] }
    }

    fn count(&mut self, from: usize, bytes: usize) {
        self.exchange.count(from, bytes);
    }
}
