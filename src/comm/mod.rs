//! Ranks talking to each other.
//!
//! A [`Comm`] is one rank's end of a group of ranks: who am I, how many are we, and the collectives. It moves slices of
//! numbers, never tensors. Underneath lies a transport: threads of one process, or MPI processes; a lab cannot tell which.
//!
//! Reading order: `mod.rs` (the handle), `threads.rs` (how threads meet), `mpi.rs` (how processes do), `element.rs` (what is
//! added, and in which order), `pending.rs` (a collective that goes on meanwhile), `call.rs` and `error.rs` (how a failure is
//! told), `lateness.rs` (who is late), `recorder.rs` (what happened before), `meter.rs` (what it cost), `link.rs` (what it
//! would cost on a network), `options.rs`;
//! then `algorithms` (what a collective consists of).
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
#[cfg(any(feature = "mpi", test))]
mod board;
mod call;
mod element;
mod error;
mod exchange;
#[cfg(all(test, feature = "shuttle"))]
mod explored;
mod job;
mod lateness;
mod link;
mod meter;
#[cfg(feature = "mpi")]
mod mpi;
mod options;
mod pending;
mod recorder;
pub(crate) mod sync;
mod threads;
mod transport;

pub use call::{Call, Kind};
pub use element::{Dtype, Element, Reduce};
pub use error::{CommError, Result};
pub(crate) use job::Job;
pub use link::Link;
pub use meter::Traffic;
#[cfg(feature = "mpi")]
pub(crate) use mpi::MpiWorld;
pub use options::Options;
pub use pending::{Flight, Pending};

use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;
use transport::Transport;

/// One rank's handle on a group of ranks.
///
/// Every method but `rank`, `size`, `send`, `recv` and `traffic` is a collective: all ranks of the group must call it, in
/// the same order, with the same length, reduction and root. When they do not, every rank gets an error that says who
/// did what. Lengths are in elements.
///
/// Two calls are the same if they stand in the same place of the source; those that meet from different ones, as in the
/// two arms of an `if`, need a label: `comm.labelled("weights").broadcast(…)`.
#[derive(Clone)]
pub struct Comm {
    transport: Arc<dyn Transport>,
    label: Option<&'static str>,
}

impl Comm {
    fn new(transport: Arc<dyn Transport>) -> Comm {
        Comm { transport, label: None }
    }

    /// The same handle, whose calls are compared by `label` instead of by their place in the source.
    pub fn labelled(&self, label: &'static str) -> Comm {
        Comm { transport: self.transport.clone(), label: Some(label) }
    }

    /// A world of one rank: the serial program, written with the same calls.
    pub fn alone() -> Comm {
        Job::new(1, &Options::default()).comm(0)
    }

    /// This rank's number in the group, 0 to `size() - 1`.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The number of ranks in the group (MPI's and PyTorch's world size, when the group is everyone).
    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// What this rank has sent and how long it communicated so far, over all groups.
    pub fn traffic(&self) -> Traffic {
        self.transport.meter().read()
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

    /// Sends `data` to rank `to`, without waiting for the other side; messages between two ranks arrive in order.
    #[track_caller]
    pub fn send<T: Element>(&self, data: &[T], to: usize) -> Result<()> {
        let call = self.call::<T>(Kind::Send, data.len(), None, Some(to));
        self.check_peer(&call, to)?;
        self.counted(&call, || self.transport.send(&call, bytemuck::cast_slice(data), to))
    }

    /// Waits for the next message from rank `from`, which must be as long as `data`.
    #[track_caller]
    pub fn recv<T: Element>(&self, data: &mut [T], from: usize) -> Result<()> {
        let call = self.call::<T>(Kind::Recv, data.len(), None, Some(from));
        self.check_peer(&call, from)?;
        self.counted(&call, || self.transport.recv(&call, bytemuck::cast_slice_mut(data), from))
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
        Call { kind, dtype: T::DTYPE, len, op, peer, at: Location::caller(), label: self.label }
    }

    fn start<T: Element>(&self, call: &Call, data: Vec<T>) -> Result<Pending<T>> {
        let start = Instant::now();
        let under_way = self.counted(call, || self.transport.clone().start(call, Box::new(data)))?;
        Ok(Pending::new(under_way, self.transport.clone(), *call, start))
    }

    fn counted<R>(&self, call: &Call, communicate: impl FnOnce() -> Result<R>) -> Result<R> {
        let recorder = self.transport.recorder();
        let start = Instant::now();
        recorder.begin(call, start);
        let result = communicate();
        let time = start.elapsed();
        recorder.end(start + time, result.is_ok());
        self.transport.meter().count(call, self.rank(), self.size(), time);
        result
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
