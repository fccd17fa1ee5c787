//! Non-blocking collectives: each rank does a share of the work whenever it looks after them.

use super::{Meeting, Threads, reduction};
use crate::comm::Result;
use crate::comm::call::{Call, Kind};
use crate::comm::element::{Reduction, Work};
use crate::comm::transport::UnderWay;
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

/// One rank's side of a collective that goes on while it computes.
pub(super) struct Started {
    threads: Arc<Threads>,
    call: Call,
    meeting: Arc<Meeting>,
}

impl Started {
    /// `last`: whether this rank was the last to come.
    pub fn new(threads: Arc<Threads>, call: Call, meeting: Arc<Meeting>, last: bool) -> Started {
        let started = Started { threads, call, meeting };
        if last {
            started.threads.ring_others();
            started.note_end();
        }
        started
    }

    fn is_done(&self) -> bool {
        self.meeting.exchange.is_complete() && self.meeting.exchange.is_reduced(self.bytes())
    }

    fn bytes(&self) -> usize {
        self.call.bytes(self.threads.members.len())
    }

    /// Does up to `most` blocks, and wakes those who wait for the last one.
    fn work(&self, most: usize) {
        let reduction = |into| reduction(&self.call, into);
        let what = match self.call.kind {
            Kind::StartAllGather => Work::AllGather,
            Kind::StartReduceScatter => {
                let Reduction { dtype, op, .. } = reduction(0..0);
                Work::ReduceScatter(dtype, op)
            }
            _ => {
                let all = 0..self.threads.members.len();
                Work::Reduce(reduction(self.call.peer.map_or(all, |root| root.rank..root.rank + 1)))
            }
        };
        self.meeting.exchange.work(self.threads.rank, &what, self.bytes(), most);
        self.note_end();
    }

    /// Notes when it is done, and wakes those who wait for that.
    fn note_end(&self) {
        if self.is_done() {
            self.meeting.reduced.get_or_init(Instant::now);
            if self.meeting.exchange.has_sleepers() {
                self.threads.ring_sleepers();
            }
        }
    }
}

impl UnderWay for Started {
    fn test(&mut self) -> Result<bool> {
        let Started { threads, call, meeting } = &*self;
        let mut state = threads.run.lock();
        state.stop_if_failed(threads.me(), call)?;
        threads.run.stop_if_ended(threads.me(), &mut state, call, |_| threads.missing(&meeting.exchange))?;
        drop(state);
        if !meeting.exchange.is_complete() {
            return Ok(false);
        }
        // A share: as much as each has to do when all come at the same time.
        let share = meeting.exchange.blocks(self.bytes()).div_ceil(threads.members.len());
        self.work(share);
        Ok(self.is_done() && self.meeting.over.get().is_none_or(|&over| over <= Instant::now()))
    }

    fn wait(&mut self) -> Result<Instant> {
        let Started { threads, call, meeting } = &*self;
        let (run, me, exchange) = (&threads.run, threads.me(), &meeting.exchange);
        let state = run.lock();
        state.stop_if_failed(me, call)?;
        drop(run.wait(me, state, call, |_| exchange.is_complete(), |_| threads.missing(exchange))?);
        self.work(usize::MAX);
        // A rank that has taken a block does not stop before it is done.
        let Started { threads, call, meeting } = &*self;
        threads.stay(&meeting.exchange, false, || self.is_done());
        let over = meeting.over.get().copied();
        let reduced = *meeting.reduced.get_or_init(Instant::now);
        drop(threads.run.sleep_until(threads.me(), threads.run.lock(), call, over)?);
        Ok(over.map_or(reduced, |over| over.max(reduced)))
    }

    fn take(self: Box<Self>) -> Box<dyn Any> {
        let rank = self.threads.rank;
        let mut vector = self.meeting.exchange.take_back(rank);
        if self.call.kind == Kind::StartReduceScatter {
            vector.keep(rank * self.call.len..(rank + 1) * self.call.len);
        }
        vector.into_any()
    }
}
