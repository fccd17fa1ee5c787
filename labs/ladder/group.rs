//! What a rank sends: the calls of shardlab's `Comm`, noted with the time that they would take.

use crate::clock::Event;
use crate::log::Log;
use shardlab::comm::{self, CallKind, Comm, Link, Reduce, Result};
use std::cell::RefCell;

/// A group of ranks, of which this rank is one. All ranks of a group must make the same collective
/// calls in the same order. `send` and `recv` concern two ranks.
#[derive(Clone, Copy)]
pub struct Group<'r> {
    comm: &'r Comm,
    log: &'r RefCell<Log>,
    /// Between its ranks: a fast one, if they share a node.
    link: Link,
}

impl<'r> Group<'r> {
    pub(crate) fn new(comm: &'r Comm, log: &'r RefCell<Log>, link: Link) -> Group<'r> {
        Group { comm, log, link }
    }

    /// This rank's number in the group, from 0.
    pub fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.comm.size()
    }

    /// Replaces every rank's `data` by all ranks' data, combined: their sum or their mean.
    ///
    /// # Errors
    /// If a rank does not make the same call.
    #[track_caller]
    pub fn all_reduce(&self, data: &mut [f32], how: Reduce) -> Result<()> {
        let left_at = self.leave(CallKind::AllReduce, data.len());
        let result = self.comm.all_reduce(data, how);
        self.back(left_at);
        result
    }

    /// Begins an all-reduce, and returns at once. The rank computes meanwhile. [`Pending::wait`]
    /// gives the same vector back, with the result in it.
    ///
    /// # Errors
    /// If a rank does not make the same call.
    #[track_caller]
    pub fn start_all_reduce(&self, data: Vec<f32>, how: Reduce) -> Result<Pending<'r>> {
        let kind = CallKind::AllReduce;
        let (call, left_at) = self.begin(kind, data.len());
        let pending = self.comm.start_all_reduce(data, how);
        self.begun(pending, kind, call, left_at)
    }

    /// Begins an all-gather, and returns at once. `all` has an equal part for each rank, and this
    /// rank has filled in its own. [`Pending::wait`] gives the same vector back, with all parts.
    ///
    /// # Errors
    /// If a rank does not make the same call, or if `all` has no `size()` equal parts.
    #[track_caller]
    pub fn start_all_gather(&self, all: Vec<f32>) -> Result<Pending<'r>> {
        let kind = CallKind::AllGather;
        let (call, left_at) = self.begin(kind, all.len());
        let pending = self.comm.start_all_gather(all);
        self.begun(pending, kind, call, left_at)
    }

    /// Begins a reduce-scatter, and returns at once. `all` has an equal part for each rank.
    /// [`Pending::wait`] gives this rank's part of the result. Until then all of `all` is held.
    ///
    /// # Errors
    /// If a rank does not make the same call, or if `all` has no `size()` equal parts.
    #[track_caller]
    pub fn start_reduce_scatter(&self, all: Vec<f32>, how: Reduce) -> Result<Pending<'r>> {
        let kind = CallKind::ReduceScatter;
        let (call, left_at) = self.begin(kind, all.len());
        let pending = self.comm.start_reduce_scatter(all, how);
        self.begun(pending, kind, call, left_at)
    }

    /// Combines all ranks' `all`, which has an equal part for each rank, and leaves this rank's
    /// part of the result in `mine`.
    ///
    /// # Errors
    /// If a rank does not make the same call, or if `all` is not as long as `size()` times `mine`.
    #[track_caller]
    pub fn reduce_scatter(&self, all: &[f32], mine: &mut [f32], how: Reduce) -> Result<()> {
        let left_at = self.leave(CallKind::ReduceScatter, all.len());
        let result = self.comm.reduce_scatter(all, mine, how);
        self.back(left_at);
        result
    }

    /// Leaves all ranks' `mine` in every rank's `all`, in rank order.
    ///
    /// # Errors
    /// If a rank does not make the same call, or if `all` is not as long as `size()` times `mine`.
    #[track_caller]
    pub fn all_gather(&self, mine: &[f32], all: &mut [f32]) -> Result<()> {
        let left_at = self.leave(CallKind::AllGather, all.len());
        let result = self.comm.all_gather(mine, all);
        self.back(left_at);
        result
    }

    /// Sends `data` to rank `to` of the group, without waiting for it.
    ///
    /// # Errors
    /// If the group has no such rank.
    #[track_caller]
    pub fn send(&self, data: &[f32], to: usize) -> Result<()> {
        let peer = self.comm.members().get(to).copied().unwrap_or_default();
        let bytes = size_of_val(data);
        let link = self.link;
        self.log.borrow_mut().tell(Event::Send { to: peer, bytes, link });
        let left_at = self.log.borrow_mut().held.leave();
        let result = self.comm.send(data, to);
        self.back(left_at);
        result
    }

    /// Waits for the next message from rank `from` of the group, which must be as long as `data`.
    ///
    /// # Errors
    /// If there is no such message: the other rank has ended, or waits itself.
    #[track_caller]
    pub fn recv(&self, data: &mut [f32], from: usize) -> Result<()> {
        let peer = self.comm.members().get(from).copied().unwrap_or_default();
        self.log.borrow_mut().tell(Event::Recv { from: peer });
        let left_at = self.log.borrow_mut().held.leave();
        let result = self.comm.recv(data, from);
        self.back(left_at);
        result
    }

    /// Notes a collective that goes on while the rank computes: the number of the call, for
    /// [`Group::begun`].
    fn begin(&self, kind: CallKind, numbers: usize) -> (usize, isize) {
        let call = self.note(kind, numbers);
        (call, self.log.borrow_mut().held.leave())
    }

    fn begun(
        &self,
        pending: Result<comm::Pending<f32>>,
        kind: CallKind,
        call: usize,
        left_at: isize,
    ) -> Result<Pending<'r>> {
        self.back(left_at);
        Ok(Pending { pending: pending?, log: self.log, kind, call })
    }

    /// Notes that a collective begins. Returns its number among this rank's calls.
    fn note(&self, kind: CallKind, numbers: usize) -> usize {
        let mut log = self.log.borrow_mut();
        let number = log.calls;
        log.calls += 1;
        log.tell(Event::Start {
            number,
            kind,
            bytes: numbers * size_of::<f32>(),
            link: self.link,
            members: self.comm.members().to_vec(),
        });
        number
    }

    /// Notes a collective that the rank waits for.
    fn leave(&self, kind: CallKind, numbers: usize) -> isize {
        let number = self.note(kind, numbers);
        let mut log = self.log.borrow_mut();
        log.tell(Event::Wait { number });
        log.held.leave()
    }

    fn back(&self, left_at: isize) {
        self.log.borrow_mut().held.back(left_at);
    }
}

/// A collective that goes on while its rank computes.
#[must_use = "wait() gives the result"]
pub struct Pending<'r> {
    pending: comm::Pending<f32>,
    log: &'r RefCell<Log>,
    kind: CallKind,
    call: usize,
}

impl Pending<'_> {
    /// Waits for the result.
    ///
    /// # Errors
    /// If a rank has not made the same call.
    #[track_caller]
    pub fn wait(self) -> Result<Vec<f32>> {
        let left_at = {
            let mut log = self.log.borrow_mut();
            log.tell(Event::Wait { number: self.call });
            log.held.leave()
        };
        let result = self.pending.wait();
        self.log.borrow_mut().held.back(left_at);
        let mut numbers = result?;
        if self.kind == CallKind::ReduceScatter {
            // The vector had all parts, and one is left. It should not keep the others' memory.
            numbers.shrink_to_fit();
        }
        Ok(numbers)
    }
}
