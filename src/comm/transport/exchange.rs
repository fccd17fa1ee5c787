//! Slices that the ranks of one collective lend each other. The only unsafe code of the in-process transport is here.
//!
//! Nothing is copied to be sent: every rank puts down where its slice lies, and when all have done so, ranks read each
//! other's slices where they are. A reduction cuts the vector into blocks; whoever has time takes the next one, adds it up over
//! all slices in rank order, and leaves the sum in all of them. So each number is read once and written once, and the
//! bits do not depend on who did it.
//!
//! Why that is sound:
//!
//! 1. Nobody looks at a slice before all ranks have put theirs down ([`Exchange::is_complete`]). That moment is the last of
//!    n additions to `lent`, which acquires what the others released: all slots are filled, and seen.
//! 2. Until then a rank may give up ([`Exchange::close`]), after which `lent` never grows: the moment never comes. From
//!    then on it may not: it does its part, which waits for nobody and cannot fail, and stays until all parts are done. So
//!    what was lent is alive as long as anyone looks. A panic where one must stay ends the process.
//! 3. In [`Exchange::share`], slices are lent for reading: all read, nobody writes. In [`Exchange::reduce`], and when handed
//!    over, they are lent for writing: `taken` gives each block to one rank, which alone touches that block, in all slices, until it is done.
//! 4. A vector that is handed over ([`Exchange::hand_over`]) belongs to the exchange, until its rank takes it back when all
//!    blocks are done, or to the end of the last one who has the exchange.
//! 5. `done` releases what was written, and who sees the last part done acquires it.

use super::Buffer;
use super::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use super::sync::{Mutex, last_barrier};
use crate::comm::element::{Parts, Reduction, Work, all_reduce_in_rank_order, copy_to_all};
use crate::comm::meter::even_part;
use std::ops::Range;
use std::sync::PoisonError;

/// A block is one rank's part of a small vector. The blocks of two large ones stay in a core's second-level cache.
const BLOCK_BYTES: Range<usize> = 1 << 12..1 << 16;

/// In `lent`: somebody has given up.
const CLOSED: usize = 1 << (usize::BITS - 1);

pub(super) struct Exchange {
    slots: Box<[Slot]>,
    /// Ranks that have put something down.
    lent: AtomicUsize,
    /// Parts that are done: blocks of a reduction, else ranks.
    done: AtomicUsize,
    /// Ranks that sleep until all parts are done.
    asleep: AtomicUsize,
    /// Ranks that will not look at the exchange again.
    left: AtomicUsize,
}

/// What one rank has put down.
#[derive(Default)]
struct Slot {
    /// The first byte; null until it is there.
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    /// Whether it is there to be written.
    writable: AtomicBool,
    /// The blocks of this rank's part that somebody has taken, or more.
    taken: AtomicUsize,
    /// The vector, if it was handed over.
    owner: Mutex<Option<Box<dyn Buffer>>>,
}

impl Exchange {
    pub fn new(ranks: usize) -> Exchange {
        Exchange {
            slots: (0..ranks).map(|_| Slot::default()).collect(),
            lent: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
        }
    }

    pub fn ranks(&self) -> usize {
        self.slots.len()
    }

    /// Whether `rank` has put something down.
    pub fn has(&self, rank: usize) -> bool {
        !self.slots[rank].start.load(Relaxed).is_null()
    }

    /// Whether all have.
    pub fn is_complete(&self) -> bool {
        self.lent.load(Acquire) == self.ranks()
    }

    /// Gives up, unless all are there: then false, and one must go on.
    fn close(&self) -> bool {
        let close = |lent| (lent != self.ranks()).then_some(lent | CLOSED);
        self.lent.fetch_update(AcqRel, Acquire, close).is_ok()
    }

    fn put_down(&self, rank: usize, start: *mut u8, bytes: usize, writable: bool) {
        let slot = &self.slots[rank];
        assert!(slot.start.load(Relaxed).is_null(), "a rank comes once");
        slot.bytes.store(bytes, Relaxed);
        slot.writable.store(writable, Relaxed);
        slot.start.store(start, Relaxed);
        self.lent.fetch_add(1, AcqRel);
    }

    /// Lends `mine` to the others for reading. `come` returns when all have, or an error; then `work` is done on all slices,
    /// and `stay` returns when all ranks have done theirs.
    pub fn share<E>(
        &self,
        rank: usize,
        mine: &[u8],
        come: impl FnOnce() -> Result<(), E>,
        work: impl FnOnce(&Shared),
        stay: impl FnOnce(),
    ) -> Result<(), E> {
        let work = || {
            assert!(self.slots.iter().all(|slot| !slot.writable.load(Relaxed)));
            work(&Shared(self));
            self.done.fetch_add(1, SeqCst);
        };
        let slice = (mine.as_ptr().cast_mut(), mine.len(), false);
        self.lend(rank, slice, come, work, stay, || self.is_shared())
    }

    /// Lends `mine` to the others, to be reduced. As [`Exchange::share`]; all slices are of the same length.
    pub fn reduce<E>(
        &self,
        rank: usize,
        mine: &mut [u8],
        how: Reduction,
        come: impl FnOnce() -> Result<(), E>,
        stay: impl FnOnce(),
    ) -> Result<(), E> {
        let bytes = mine.len();
        let what = Work::Reduce(how);
        let (slice, work) = ((mine.as_mut_ptr(), bytes, true), || self.work(rank, &what, bytes, usize::MAX));
        self.lend(rank, slice, come, work, stay, || self.is_reduced(bytes))
    }

    /// What the two have in common. Who may touch this rank's slice, as time passes:
    ///
    /// ```text
    ///  put_down        come                     work                          stay                 return
    ///  ├─ this rank has put it down ─┼─ all have: each reads it, or ─┼─ this rank is done, ─┼─ all are done
    ///  │  nobody touches it; this    │  writes the blocks it has     │  others may still    │  it is this rank's
    ///  │  rank may take it back      │  taken; no way back           │  touch it            │  alone again
    ///     (`close`) and leave
    /// ```
    fn lend<E>(
        &self,
        rank: usize,
        (start, bytes, writable): (*mut u8, usize, bool),
        come: impl FnOnce() -> Result<(), E>,
        work: impl FnOnce(),
        stay: impl FnOnce(),
        is_done: impl Fn() -> bool,
    ) -> Result<(), E> {
        /// Lets no panic take a slice away from those who look at it.
        struct Lent<'a>(&'a Exchange);
        impl Drop for Lent<'_> {
            fn drop(&mut self) {
                if !self.0.close() {
                    eprintln!("a panic inside a collective: other ranks are reading this one's memory");
                    std::process::abort();
                }
            }
        }
        let lent = Lent(self);
        self.put_down(rank, start, bytes, writable);
        let came = come();
        if came.is_err() && self.close() {
            std::mem::forget(lent);
            return came;
        }
        assert!(self.is_complete());
        work();
        if last_barrier() {
            stay();
            assert!(is_done());
        }
        std::mem::forget(lent);
        came
    }

    /// Hands over a vector, on which [`Exchange::work`] works together with the others'.
    pub fn hand_over(&self, rank: usize, mut vector: Box<dyn Buffer>) {
        let bytes = vector.bytes_mut();
        let (start, bytes) = (bytes.as_mut_ptr(), bytes.len());
        *self.slots[rank].owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(vector);
        self.put_down(rank, start, bytes, true);
    }

    /// Gives `rank` its vector back, when all work is done.
    pub fn take_back(&self, rank: usize) -> Box<dyn Buffer> {
        let slot = &self.slots[rank];
        assert!(self.is_complete() && self.is_reduced(slot.bytes.load(Relaxed)));
        let vector = slot.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        vector.expect("a rank takes back once what it has handed over")
    }

    /// The bytes of a block, of a vector of so many.
    fn block(&self, bytes: usize) -> usize {
        let part = bytes.div_ceil(self.ranks()).next_multiple_of(64);
        part.clamp(BLOCK_BYTES.start, BLOCK_BYTES.end)
    }

    /// The blocks of a vector of so many bytes.
    pub fn blocks(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.block(bytes))
    }

    /// Whether all blocks are done.
    pub fn is_reduced(&self, bytes: usize) -> bool {
        self.done.load(SeqCst) == self.blocks(bytes)
    }

    /// Whether all ranks have done their part of [`Exchange::share`].
    pub fn is_shared(&self) -> bool {
        self.done.load(SeqCst) == self.ranks()
    }

    /// Once all are there: `rank` does up to `most` of the blocks that nobody has taken. It begins with its own part of the
    /// vector, the same every time: what it leaves in its cache it finds there again.
    pub fn work(&self, rank: usize, what: &Work, bytes: usize, most: usize) {
        let fits = |slot: &Slot| slot.writable.load(Relaxed) && slot.bytes.load(Relaxed) == bytes;
        assert!(self.is_complete() && self.slots.iter().all(fits));
        let (ranks, block, blocks) = (self.ranks(), self.block(bytes), self.blocks(bytes));
        let mut left = most;
        for part in (rank..rank + ranks).map(|part| part % ranks) {
            let numbers = even_part(blocks, part, ranks);
            while left > 0 {
                let number = numbers.start + self.slots[part].taken.fetch_add(1, Relaxed);
                if number >= numbers.end {
                    break;
                }
                let range = number * block..bytes.min((number + 1) * block);
                self.work_on(what, bytes, range);
                self.done.fetch_add(1, SeqCst);
                left -= 1;
            }
        }
    }

    /// Does what is to be done with one block, which `work` has taken: `range` of all vectors, which have `bytes` bytes.
    fn work_on(&self, what: &Work, bytes: usize, range: Range<usize>) {
        if let Work::Reduce(how) = what {
            return all_reduce_in_rank_order(how, &mut Block { exchange: self, range });
        }
        // A block may lie across several ranks' parts.
        let part = bytes / self.ranks();
        for rank in range.start / part..range.end.div_ceil(part) {
            let range = range.start.max(rank * part)..range.end.min((rank + 1) * part);
            let mut block = Block { exchange: self, range };
            match *what {
                Work::ReduceScatter(dtype, op) => {
                    all_reduce_in_rank_order(&Reduction { dtype, op, into: rank..rank + 1 }, &mut block);
                }
                _ => copy_to_all(rank, &mut block),
            }
        }
    }

    /// Somebody goes to sleep until all parts are done, or has woken up.
    pub fn falls_asleep(&self) {
        self.asleep.fetch_add(1, SeqCst);
    }

    pub fn wakes_up(&self) {
        self.asleep.fetch_sub(1, SeqCst);
    }

    /// Whether somebody sleeps until all parts are done. Who does a part asks after that; who falls asleep looks after
    /// that whether it is done: one of the two sees the other.
    pub fn has_sleepers(&self) -> bool {
        self.asleep.load(SeqCst) > 0
    }

    /// To be called by each rank when it will not look at the exchange again. Returns whether it was the last: then the
    /// exchange is as good as new.
    pub fn leave(&self) -> bool {
        if self.left.fetch_add(1, AcqRel) + 1 < self.ranks() {
            return false;
        }
        for slot in &self.slots {
            slot.start.store(std::ptr::null_mut(), Relaxed);
            slot.taken.store(0, Relaxed);
        }
        for counter in [&self.lent, &self.done, &self.left] {
            counter.store(0, Relaxed);
        }
        true
    }
}

/// All ranks' slices, to be read.
pub(super) struct Shared<'a>(&'a Exchange);

impl Shared<'_> {
    /// What `rank` has lent.
    pub fn of(&self, rank: usize) -> &[u8] {
        let slot = &self.0.slots[rank];
        // SAFETY: a `Shared` exists only in `Exchange::share`, after all have put down slices for reading (1 and 3 above); they
        // are alive until all ranks have dropped theirs (2).
        unsafe { std::slice::from_raw_parts(slot.start.load(Relaxed), slot.bytes.load(Relaxed)) }
    }
}

/// One block of all ranks' slices.
struct Block<'a> {
    exchange: &'a Exchange,
    range: Range<usize>,
}

impl Block<'_> {
    /// # Safety
    /// Nobody may have the same rank's slice.
    #[allow(clippy::mut_from_ref, reason = "the caller sees to it")]
    unsafe fn slice(&self, rank: usize) -> &mut [u8] {
        let slot = &self.exchange.slots[rank];
        // SAFETY: a `Block` exists only in `Exchange::work`, after all have put down slices for writing, each of the length
        // that was compared there (1 and 3 above); this block, or the block that it is a part of, is this rank's alone
        // until it is done, and the slices are alive until all are (2 and 4).
        unsafe { std::slice::from_raw_parts_mut(slot.start.load(Relaxed).add(self.range.start), self.range.len()) }
    }
}

impl Parts for Block<'_> {
    fn ranks(&self) -> usize {
        self.exchange.ranks()
    }

    fn bytes(&self) -> usize {
        self.range.len()
    }

    fn of(&mut self, rank: usize) -> &mut [u8] {
        // SAFETY: see `Block::slice`; the borrow of `self` lets out no other slice meanwhile.
        unsafe { self.slice(rank) }
    }

    fn two(&mut self, [a, b]: [usize; 2]) -> [&mut [u8]; 2] {
        assert_ne!(a, b);
        // SAFETY: see `Block::slice`; two ranks' slices do not overlap, as both were lent for writing.
        unsafe { [self.slice(a), self.slice(b)] }
    }
}
