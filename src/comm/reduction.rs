//! One all-reduce of vectors that the ranks have handed over, done by whoever has time.
//!
//! The vectors lie in memory that all ranks can reach, so nothing travels: the vector is cut into blocks, and when all
//! ranks have brought theirs, a rank takes the next block that nobody has taken, adds it up over all vectors in rank order and
//! leaves the sum in all of them. Each number is read once and written once, whoever does it, in the same order: the bits
//! do not depend on who.

use super::call::Call;
use super::element::all_reduce_in_rank_order;
use super::pending::Buffer;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use std::sync::{Mutex, PoisonError};

/// Small enough that two vectors' blocks stay in a core's second-level cache, large enough that taking one costs nothing.
const BLOCK_BYTES: usize = 1 << 16;

pub(super) struct Reduction {
    call: Call,
    bytes: usize,
    vectors: Box<[Vector]>,
    /// Set when all vectors are there.
    ready: AtomicBool,
    /// Blocks taken, or more.
    taken: AtomicUsize,
    /// Blocks done.
    done: AtomicUsize,
}

#[derive(Default)]
struct Vector {
    /// The vector's first byte; null until it is there.
    start: AtomicPtr<u8>,
    /// Keeps it alive.
    owner: Mutex<Option<Box<dyn Buffer>>>,
}

impl Reduction {
    pub fn new(call: &Call, ranks: usize) -> Reduction {
        Reduction {
            call: call.clone(),
            bytes: call.len * call.dtype.size(),
            vectors: (0..ranks).map(|_| Vector::default()).collect(),
            ready: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        }
    }

    /// `rank` hands over its vector, once. Returns whether it was the last one; then [`Reduction::work`] may begin.
    pub fn bring(&self, rank: usize, mut buffer: Box<dyn Buffer>) -> bool {
        let Vector { start, owner } = &self.vectors[rank];
        assert_eq!(buffer.bytes_mut().len(), self.bytes, "ranks bring vectors of the length that they have agreed on");
        start.store(buffer.bytes_mut().as_mut_ptr(), Release);
        *owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffer);
        let all = (0..self.vectors.len()).all(|rank| self.has(rank));
        self.ready.store(all, Release);
        all
    }

    /// Whether `rank` has brought its vector.
    pub fn has(&self, rank: usize) -> bool {
        !self.vectors[rank].start.load(Acquire).is_null()
    }

    /// Whether all vectors are there.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// Whether the result is there.
    pub fn is_done(&self) -> bool {
        self.is_ready() && self.done.load(Acquire) == self.blocks()
    }

    fn blocks(&self) -> usize {
        self.bytes.div_ceil(BLOCK_BYTES)
    }

    /// One rank's share of the blocks.
    pub fn share(&self) -> usize {
        self.blocks().div_ceil(self.vectors.len())
    }

    /// Does up to `most` of the blocks that nobody has taken. Returns whether that brought the last one to its end.
    pub fn work(&self, most: usize) -> bool {
        assert!(self.is_ready());
        for _ in 0..most {
            let block = self.taken.fetch_add(1, Relaxed);
            if block >= self.blocks() {
                return false;
            }
            let start = block * BLOCK_BYTES;
            let range = start..self.bytes.min(start + BLOCK_BYTES);
            let mut parts: Vec<&mut [u8]> = self.vectors.iter().map(|vector| vector.part(&range)).collect();
            let op = self.call.op.expect("a reducing call names its reduction");
            all_reduce_in_rank_order(self.call.dtype, op, &mut parts);
            if self.done.fetch_add(1, AcqRel) + 1 == self.blocks() {
                return true;
            }
        }
        false
    }

    /// Gives `rank` its vector back, once the result is there.
    pub fn take(&self, rank: usize) -> Box<dyn Buffer> {
        assert!(self.is_done());
        let mut owner = self.vectors[rank].owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.take().expect("a rank takes its vector once")
    }
}

impl Vector {
    /// A stretch of the vector. Only for [`Reduction::work`].
    #[allow(clippy::mut_from_ref, reason = "each block is one rank's alone, see below")]
    fn part(&self, range: &Range<usize>) -> &mut [u8] {
        let start = self.start.load(Acquire);
        // SAFETY: `work` calls this when all vectors are there (`ready`), each at least as long as the call says (`bring`).
        // A vector lives in `owner` until `take`, which comes after the last block is done, or until nobody has the
        // `Reduction` any more; its heap memory does not move with it, and nobody else touches it there. Blocks do not
        // overlap, and `taken` gives each to one rank. `done` (release, acquire) orders all writes before any `take`.
        unsafe { &mut *ptr::slice_from_raw_parts_mut(start.add(range.start), range.len()) }
    }
}
