//! Ranks talking to each other.
//!
//! A [`Comm`] is one rank's end of a group of ranks: who am I, how many are we, and the collectives. It moves slices of
//! numbers, never tensors. Underneath lies a transport: threads of one process, or MPI processes; a lab cannot tell which.
//!
//! Reading order: `mod.rs` (the handle), `algorithms/` (what a collective consists of), `element.rs` (what is added, and in
//! which order), `pending.rs` (a collective that goes on while its rank computes), `call.rs` and `error.rs` (how a failure is
//! told), `meter.rs` (what it cost), `link.rs` (what it would cost on a network), `recorder.rs` (what happened before an
//! error), `options.rs`; and behind one door `transport/`, which moves the bytes.
//!
//! ```
//! use shardlab::{comm::Reduce, launch};
//!
//! let sums = launch::run(4, |comm| {
//!     let mut x = [comm.rank() as f32, 1.0];
//!     comm.all_reduce(&mut x, Reduce::Sum)?;
//!     Ok(x)
//! })?;
//! assert_eq!(sums, [[6.0, 4.0]; 4]);
//! # anyhow::Ok(())
//! ```

pub mod algorithms;
mod call;
mod element;
mod error;
mod link;
mod meter;
mod options;
mod pending;
mod recorder;
mod transport;

pub use call::{Call, Kind, Peer};
pub use element::{Dtype, Element, Reduce};
pub use error::{CommError, Result};
pub use link::Link;
pub use meter::Traffic;
pub use options::Options;
pub use pending::{Flight, Pending};
#[cfg(feature = "mpi")]
pub(crate) use transport::MpiWorld;
pub(crate) use transport::{Run, sync};

use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;
use transport::Transport;

/// One rank's handle on a group of ranks.
///
/// A collective is a call that all ranks of the group must make, in the same order, with the same length, reduction and root.
/// When they do not, every rank gets an error that says who did what. Messages concern two ranks: `send`, `recv`, `probe`.
/// Lengths are in elements.
///
/// Two collective calls are the same if they stand in the same place of the source; those that meet from different ones, as in the
/// two arms of an `if`, need a label: `comm.labelled("weights").broadcast(…)`.
#[derive(Clone)]
pub struct Comm {
    transport: Arc<dyn Transport>,
    name: Option<&'static str>,
    label: Option<&'static str>,
    tag: u16,
}

impl Comm {
    /// The largest tag of a message: what every MPI library takes.
    pub const MAX_TAG: u16 = 32_767;

    fn new(transport: Arc<dyn Transport>) -> Comm {
        Comm { transport, name: None, label: None, tag: 0 }
    }

    /// The same group with a name, which errors and the flight recorder's file print: `comm.split(…)?.named("tensor")`.
    pub fn named(self, name: &'static str) -> Comm {
        Comm { name: Some(name), ..self }
    }

    /// The same handle, whose calls are compared by `label` instead of by their place in the source.
    pub fn labelled(&self, label: &'static str) -> Comm {
        Comm { label: Some(label), ..self.clone() }
    }

    /// The same handle, whose messages carry `tag`: a message is received by a call with the same tag. Without one it is 0.
    /// Collectives have no tag.
    ///
    /// Two streams of messages between the same two ranks need two tags, unless both ranks agree on one order of all.
    pub fn tagged(&self, tag: u16) -> Comm {
        Comm { tag, ..self.clone() }
    }

    /// A world of one rank: the serial program, written with the same calls.
    pub fn alone() -> Comm {
        Run::new(1, &Options::default()).comm(0)
    }

    /// This rank's number in the group, 0 to `size() - 1`.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The number of ranks in the group (MPI's and PyTorch's world size, when the group is everyone).
    pub fn size(&self) -> usize {
        self.members().len()
    }

    /// The members' numbers in the world, in the order of their numbers here.
    pub fn members(&self) -> &[usize] {
        self.transport.members()
    }

    /// What this rank has sent and how long it communicated so far, in this group.
    pub fn traffic(&self) -> Traffic {
        self.transport.meter().read()
    }

    /// What this rank has sent and how long it communicated so far, over all its groups.
    pub fn total_traffic(&self) -> Traffic {
        self.transport.meters().total()
    }

    /// Whether this group's sums are added in rank order. Then the same numbers add up to the same bits, in whatever pieces they
    /// are sent. An MPI library chooses its own order, as soon as there is more than one.
    pub fn adds_in_rank_order(&self) -> bool {
        self.transport.adds_in_rank_order()
    }

    /// Divides the group: ranks that give the same `color` form a new group, ordered by `key`, then by rank here.
    #[track_caller]
    pub fn split(&self, color: u64, key: i64) -> Result<Comm> {
        let call = self.call::<u8>(Kind::Split, 0, None, None);
        self.counted(&call, || self.transport.split(&call, color, key)).map(Comm::new)
    }

    /// Returns when every rank has called it.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        let call = self.call::<u8>(Kind::Barrier, 0, None, None);
        self.counted(&call, || self.transport.barrier(&call))
    }

    /// Sends `data` to rank `to`, without waiting for the other side. Messages of one tag arrive in the order in which they were
    /// sent. One that `to` has not received when the run ends is an error.
    #[track_caller]
    pub fn send<T: Element>(&self, data: &[T], to: usize) -> Result<()> {
        let call = self.message::<T>(Kind::Send, data.len(), to)?;
        self.counted(&call, || self.transport.send(&call, bytemuck::cast_slice(data), to))
    }

    /// Waits for the next message with this handle's tag from rank `from`, which must be as long as `data`.
    #[track_caller]
    pub fn recv<T: Element>(&self, data: &mut [T], from: usize) -> Result<()> {
        let call = self.message::<T>(Kind::Recv, data.len(), from)?;
        self.counted(&call, || self.transport.recv(&call, bytemuck::cast_slice_mut(data), from))
    }

    /// Whether a message with this handle's tag from rank `from` is there to be received. Never waits, so the deadline does not
    /// concern it; an error if the run has failed, or if `from` has ended and no message can come.
    #[track_caller]
    pub fn probe(&self, from: usize) -> Result<bool> {
        let call = self.message::<u8>(Kind::Probe, 0, from)?;
        self.transport.probe(&call, from)
    }

    /// Combines all ranks' `data` element by element; every rank ends with the result.
    #[track_caller]
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: Reduce) -> Result<()> {
        let call = self.call::<T>(Kind::AllReduce, data.len(), Some(op), None);
        check_mean(&call)?;
        self.counted(&call, || self.transport.all_reduce(&call, bytemuck::cast_slice_mut(data)))
    }

    /// Starts an all-reduce that goes on while this rank computes; [`Pending`] tells when it is done, and hands `data` back.
    ///
    /// Several may be under way in a group. As with all collectives, every rank must start them, and call the others, in the
    /// same order; they may be waited for in any.
    #[track_caller]
    pub fn start_all_reduce<T: Element>(&self, data: Vec<T>, op: Reduce) -> Result<Pending<T>> {
        let call = self.call::<T>(Kind::StartAllReduce, data.len(), Some(op), None);
        check_mean(&call)?;
        self.start(&call, data)
    }

    /// Starts a reduction that goes on while this rank computes: `root`'s vector comes back with the result, the others' as
    /// they were.
    #[track_caller]
    pub fn start_reduce<T: Element>(&self, data: Vec<T>, op: Reduce, root: usize) -> Result<Pending<T>> {
        let call = self.call::<T>(Kind::StartReduce, data.len(), Some(op), Some(root));
        check_mean(&call)?;
        self.check_peer(&call, root)?;
        self.start(&call, data)
    }

    /// Starts an all-gather that goes on while this rank computes. `all` consists of `size()` equal parts, of which rank r
    /// fills in the r-th; [`Pending`] hands it back with all of them.
    #[track_caller]
    pub fn start_all_gather<T: Element>(&self, all: Vec<T>) -> Result<Pending<T>> {
        let call = self.call::<T>(Kind::StartAllGather, all.len() / self.size(), None, None);
        self.check_parts(&call, all.len())?;
        self.start(&call, all)
    }

    /// Starts a reduce-scatter that goes on while this rank computes: [`Pending`] hands back the r-th of `size()` equal parts
    /// of `all`, reduced, in the same vector.
    #[track_caller]
    pub fn start_reduce_scatter<T: Element>(&self, all: Vec<T>, op: Reduce) -> Result<Pending<T>> {
        let call = self.call::<T>(Kind::StartReduceScatter, all.len() / self.size(), Some(op), None);
        check_mean(&call)?;
        self.check_parts(&call, all.len())?;
        self.start(&call, all)
    }

    /// Like [`Comm::all_reduce`], but only `root` ends with the result; the others' `data` stays as it was.
    #[track_caller]
    pub fn reduce<T: Element>(&self, data: &mut [T], op: Reduce, root: usize) -> Result<()> {
        let call = self.call::<T>(Kind::Reduce, data.len(), Some(op), Some(root));
        check_mean(&call)?;
        self.check_peer(&call, root)?;
        self.counted(&call, || self.transport.reduce(&call, bytemuck::cast_slice_mut(data), root))
    }

    /// `root`'s `data` replaces everyone's.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        let call = self.call::<T>(Kind::Broadcast, data.len(), None, Some(root));
        self.check_peer(&call, root)?;
        self.counted(&call, || self.transport.broadcast(&call, bytemuck::cast_slice_mut(data), root))
    }

    /// Every rank ends with all ranks' `mine`, in rank order; `all` has `size()` times its length.
    #[track_caller]
    pub fn all_gather<T: Element>(&self, mine: &[T], all: &mut [T]) -> Result<()> {
        let call = self.call::<T>(Kind::AllGather, mine.len(), None, None);
        self.check_parts(&call, all.len())?;
        self.counted(&call, || {
            self.transport.all_gather(&call, bytemuck::cast_slice(mine), bytemuck::cast_slice_mut(all))
        })
    }

    /// Combines all ranks' `all` and leaves rank r with the r-th of `size()` equal parts, in `mine`.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&self, all: &[T], mine: &mut [T], op: Reduce) -> Result<()> {
        let call = self.call::<T>(Kind::ReduceScatter, mine.len(), Some(op), None);
        check_mean(&call)?;
        self.check_parts(&call, all.len())?;
        self.counted(&call, || {
            self.transport.reduce_scatter(&call, bytemuck::cast_slice(all), bytemuck::cast_slice_mut(mine))
        })
    }

    /// `root` hands the r-th of `size()` equal parts of `all` to rank r; the other ranks' `all` is not read.
    #[track_caller]
    pub fn scatter<T: Element>(&self, all: &[T], mine: &mut [T], root: usize) -> Result<()> {
        let call = self.call::<T>(Kind::Scatter, mine.len(), None, Some(root));
        self.check_peer(&call, root)?;
        let all = if self.rank() == root { all } else { &[] };
        if self.rank() == root {
            self.check_parts(&call, all.len())?;
        }
        self.counted(&call, || {
            self.transport.scatter(&call, bytemuck::cast_slice(all), bytemuck::cast_slice_mut(mine), root)
        })
    }

    /// `root` ends with all ranks' `mine`, in rank order; the other ranks' `all` is not touched.
    #[track_caller]
    pub fn gather<T: Element>(&self, mine: &[T], all: &mut [T], root: usize) -> Result<()> {
        let call = self.call::<T>(Kind::Gather, mine.len(), None, Some(root));
        self.check_peer(&call, root)?;
        let all = if self.rank() == root { all } else { &mut [] };
        if self.rank() == root {
            self.check_parts(&call, all.len())?;
        }
        self.counted(&call, || {
            self.transport.gather(&call, bytemuck::cast_slice(mine), bytemuck::cast_slice_mut(all), root)
        })
    }

    /// Rank r's q-th part goes to rank q's r-th part; both slices consist of `size()` equal parts.
    #[track_caller]
    pub fn all_to_all<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        let call = self.call::<T>(Kind::AllToAll, send.len() / self.size(), None, None);
        self.check_parts(&call, send.len())?;
        self.check_parts(&call, recv.len())?;
        self.counted(&call, || {
            self.transport.all_to_all(&call, bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv))
        })
    }

    #[track_caller]
    fn call<T: Element>(&self, kind: Kind, len: usize, op: Option<Reduce>, peer: Option<usize>) -> Call {
        let in_world = |rank: usize| self.members().get(rank).copied().unwrap_or(rank);
        let peer = peer.map(|rank| Peer { rank, in_world: in_world(rank) });
        let (at, label, group) = (Location::caller(), self.label, self.name);
        Call { kind, dtype: T::DTYPE, len, op, peer, tag: 0, group, at, label }
    }

    #[track_caller]
    fn message<T: Element>(&self, kind: Kind, len: usize, peer: usize) -> Result<Call> {
        let call = Call { tag: self.tag, ..self.call::<T>(kind, len, None, Some(peer)) };
        self.check_peer(&call, peer)?;
        if self.tag > Comm::MAX_TAG {
            return Err(CommError::Invalid(format!("{call}: tags are 0 to {}", Comm::MAX_TAG)));
        }
        Ok(call)
    }

    fn start<T: Element>(&self, call: &Call, data: Vec<T>) -> Result<Pending<T>> {
        let start = Instant::now();
        let (under_way, number) = self.numbered(call, || self.transport.clone().start(call, Box::new(data)))?;
        Ok(Pending::new(under_way, self.transport.clone(), *call, number, start))
    }

    fn counted<R>(&self, call: &Call, communicate: impl FnOnce() -> Result<R>) -> Result<R> {
        self.numbered(call, communicate).map(|(result, _)| result)
    }

    /// Makes a call, records and measures it. Also returns its number in the flight recorder.
    fn numbered<R>(&self, call: &Call, communicate: impl FnOnce() -> Result<R>) -> Result<(R, u64)> {
        let recorder = self.transport.recorder();
        let start = Instant::now();
        let number = recorder.begin(call, start);
        let result = communicate();
        let time = start.elapsed();
        recorder.end(start + time, result.is_ok());
        self.transport.meter().count(call, self.rank(), self.size(), time);
        result.map(|result| (result, number))
    }

    fn check_peer(&self, call: &Call, peer: usize) -> Result<()> {
        if peer < self.size() {
            return Ok(());
        }
        Err(CommError::Invalid(format!(
            "{call}: there is no rank {peer} in a group of {} (ranks are 0 to {})",
            self.size(),
            self.size() - 1
        )))
    }

    fn check_parts(&self, call: &Call, all: usize) -> Result<()> {
        if call.len.checked_mul(self.size()) == Some(all) {
            return Ok(());
        }
        Err(CommError::Invalid(format!(
            "{call}: the slice for all ranks must hold {} ranks x {} elements, but holds {all}",
            self.size(),
            call.len
        )))
    }
}

fn check_mean(call: &Call) -> Result<()> {
    if call.op == Some(Reduce::Mean) && !call.dtype.is_float() {
        return Err(CommError::Invalid(format!("{call}: integers have no mean; use sum and divide, or send floats")));
    }
    Ok(())
}
