//! The transports: how bytes get from one rank of a group to another, and all that this needs.
//!
//! [`Transport`] is the door. Behind it lie two: threads of one process, and processes of an MPI job.
//!
//! Reading order: for threads, `threads.rs` (a collective is a meeting), `threads/started.rs` (one that goes on while ranks
//! compute), `exchange.rs` (slices that ranks lend each other), `run.rs` (how ranks wait), `lateness.rs` (who is late),
//! `sync.rs` (locks). For MPI: `mpi.rs` lists its own folder, and `board.rs` is what processes have told each other.

#[cfg(any(feature = "mpi", test))]
mod board;
mod exchange;
mod lateness;
#[cfg(feature = "mpi")]
mod mpi;
mod run;
pub(crate) mod sync;
mod threads;

#[cfg(feature = "mpi")]
pub(crate) use mpi::MpiWorld;
pub(crate) use run::Run;

use super::meter::{Meter, Meters};
use super::recorder::Recorder;
use super::{Call, Element, Result};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// One rank's place in one group of ranks, over threads or over MPI.
///
/// [`Comm`](super::Comm) checks arguments before it calls these, so an implementation may rely on valid roots and on
/// lengths that fit; `call` names element type, length, reduction and root. Slices are the elements' bytes.
/// Reductions combine in rank order where the transport can promise it.
pub(in crate::comm) trait Transport: Send + Sync {
    fn rank(&self) -> usize;
    /// The members' numbers in the world, in group order.
    fn members(&self) -> &[usize];
    /// Of this group.
    fn meter(&self) -> &Meter;
    /// Of all groups of the rank.
    fn meters(&self) -> &Meters;
    fn recorder(&self) -> &Recorder;
    /// Whether sums are added in rank order, whatever the length: then they have the same bits however they are cut.
    fn adds_in_rank_order(&self) -> bool;

    fn barrier(&self, call: &Call) -> Result<()>;
    /// Buffered: returns before the other side receives.
    fn send(&self, call: &Call, data: &[u8], to: usize) -> Result<()>;
    fn recv(&self, call: &Call, data: &mut [u8], from: usize) -> Result<()>;
    /// Whether `recv` would find a message. Never waits; an error if none can come any more.
    fn probe(&self, call: &Call, from: usize) -> Result<bool>;
    fn all_reduce(&self, call: &Call, data: &mut [u8]) -> Result<()>;
    /// Starts what the call names (all-reduce, reduce, all-gather, reduce-scatter) with a vector that is handed over. To the
    /// last two, it brings one part for each rank.
    fn start(self: Arc<Self>, call: &Call, data: Box<dyn Buffer>) -> Result<Box<dyn UnderWay>>;
    fn reduce(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()>;
    fn broadcast(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()>;
    fn all_gather(&self, call: &Call, mine: &[u8], all: &mut [u8]) -> Result<()>;
    fn reduce_scatter(&self, call: &Call, all: &[u8], mine: &mut [u8]) -> Result<()>;
    /// `all` is empty except on the root.
    fn scatter(&self, call: &Call, all: &[u8], mine: &mut [u8], root: usize) -> Result<()>;
    /// `all` is empty except on the root.
    fn gather(&self, call: &Call, mine: &[u8], all: &mut [u8], root: usize) -> Result<()>;
    fn all_to_all(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()>;
    /// The new group's transport for this rank: ranks of equal `color`, ordered by `key`, then by rank.
    fn split(&self, call: &Call, color: u64, key: i64) -> Result<Arc<dyn Transport>>;
}

/// A transport's side of a [`Pending`](super::Pending).
pub(in crate::comm) trait UnderWay: Send {
    fn test(&mut self) -> Result<bool>;
    /// Returns when it was complete.
    fn wait(&mut self) -> Result<Instant>;
    /// The result, once [`UnderWay::wait`] has returned.
    fn take(self: Box<Self>) -> Box<dyn Any>;
}

/// A vector of any of the element types.
pub(in crate::comm) trait Buffer: Any + Send {
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Lets go of all elements but these.
    fn keep(&mut self, elements: Range<usize>);
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Element> Buffer for Vec<T> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }

    fn keep(&mut self, elements: Range<usize>) {
        self.truncate(elements.end);
        self.drain(..elements.start);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
