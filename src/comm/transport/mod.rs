//! The transports: they move bytes between the ranks of a group.
//!
//! [`Transport`] is the door. Behind it are two transports: threads of one process, and processes
//! of an MPI job.
//!
//! Reading order: for threads, `threads.rs` (a collective is a meeting), `threads/started.rs` (a
//! collective that continues while ranks compute), `exchange.rs` (slices that ranks share),
//! `message.rs` (a message on its way), `meetings.rs` (what ranks have brought for each other),
//! `world.rs` (how ranks wait), `lateness.rs` (ranks that are late), `sync.rs` (locks). All of MPI
//! is in `mpi/`.

mod exchange;
mod lateness;
mod meetings;
mod message;
// Its tests need no MPI library.
#[cfg(any(feature = "mpi", test))]
pub(crate) mod mpi;
pub(crate) mod sync;
mod threads;
mod world;

pub(crate) use world::ThreadWorld;

use super::meter::Meter;
use super::recorder::Recorder;
use super::uneven::Counts;
use super::{Call, Element, Result};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// One rank's end of one group of ranks, over threads or over MPI.
///
/// [`Comm`](super::Comm) checks arguments before it calls these methods. So an implementation may
/// rely on valid peers and on lengths that fit. `call` names element type, length, reduction and
/// peer. Slices are the elements' bytes.
pub(in crate::comm) trait Transport: Send + Sync {
    fn membership(&self) -> &Membership;
    /// A blocking collective. `recv` is also the input of an all-reduce, a reduce and a broadcast.
    /// Only the root has data to send in a scatter, and to receive in a gather; elsewhere that
    /// slice is empty.
    fn collective(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()>;
    /// An all-to-all with parts as `counts` says, which is the same on all ranks.
    fn exchange(&self, call: &Call, counts: &Counts, send: &[u8], recv: &mut [u8]) -> Result<()>;
    /// Starts an all-reduce, a reduce, an all-gather or a reduce-scatter. `data` has one part per
    /// rank in the last two. With `counts` it is an all-to-all with such parts: `data` has what the
    /// rank sends, and then room for what it gets.
    fn start(
        self: Arc<Self>,
        call: &Call,
        counts: Option<Counts>,
        data: Box<dyn Buffer>,
    ) -> Result<Box<dyn Progress>>;
    /// Sends a message to the call's peer. Returns before the peer receives it.
    fn send(&self, call: &Call, data: &[u8]) -> Result<()>;
    /// Receives a message from the call's peer.
    fn recv(&self, call: &Call, data: &mut [u8]) -> Result<()>;
    /// Whether a receive would find a message from the call's peer. Never waits. An error if no
    /// message can come any more.
    fn probe(&self, call: &Call) -> Result<bool>;
    /// This rank's end of a new group of some `members` of this one, in the new group's order. All
    /// of them call it. `call` is the split that makes it.
    fn group(&self, call: &Call, members: &[usize]) -> Result<Arc<dyn Transport>>;
}

/// A rank as the member of a group.
pub(in crate::comm) struct Membership {
    pub rank: usize,
    /// The members' numbers in the world, in group order.
    pub members: Arc<[usize]>,
    pub meter: Meter,
    pub recorder: Arc<Recorder>,
    /// Whether the group adds in rank order. Then sums have the same bits, however a vector is cut
    /// into pieces.
    pub adds_in_rank_order: bool,
}

impl Membership {
    /// The rank in the group of all ranks.
    fn of_world(
        rank: usize,
        size: usize,
        recorder: Arc<Recorder>,
        adds_in_rank_order: bool,
    ) -> Membership {
        Membership {
            rank,
            members: (0..size).collect(),
            meter: Meter::default(),
            recorder,
            adds_in_rank_order,
        }
    }

    /// The same rank in a new group of some members of this group, in the new group's order.
    fn of_group(&self, members: &[usize], adds_in_rank_order: bool) -> Membership {
        Membership {
            rank: members
                .iter()
                .position(|&member| member == self.rank)
                .expect("a rank is a member of its group"),
            members: members.iter().map(|&member| self.members[member]).collect(),
            meter: self.meter.of_group(),
            recorder: self.recorder.clone(),
            adds_in_rank_order,
        }
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    /// The rank's number in the world.
    fn in_world(&self) -> usize {
        self.members[self.rank]
    }
}

/// A transport's side of a [`Pending`](super::Pending).
pub(in crate::comm) trait Progress: Send {
    /// Whether the collective is complete. Does a share of the work that is left, and never waits.
    fn test(&mut self) -> Result<bool>;
    /// Waits, and returns the moment at which the collective was complete.
    fn wait(&mut self) -> Result<Instant>;
    /// The result, once [`Progress::wait`] has returned.
    fn take(self: Box<Self>) -> Box<dyn Any>;
}

/// A vector of any of the element types.
pub(in crate::comm) trait Buffer: Any + Send {
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Drops all elements but these.
    fn keep(&mut self, elements: Range<usize>);
}

impl<T: Element> Buffer for Vec<T> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }

    fn keep(&mut self, elements: Range<usize>) {
        self.truncate(elements.end);
        self.drain(..elements.start);
    }
}

/// The vector that was handed over. A call and its vector have the same type.
pub(in crate::comm) fn vector<T: Element>(handed_over: Box<dyn Any>) -> Vec<T> {
    *handed_over.downcast().expect("a call and its vector have the same type")
}
