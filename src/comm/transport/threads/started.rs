//! Non-blocking collectives: each rank does a share of the work whenever it tests or waits.

use super::Threads;
use crate::comm::Result;
use crate::comm::call::{Call, CallKind};
use crate::comm::transport::Progress;
use crate::comm::transport::meetings::Meeting;
use crate::comm::uneven::Counts;
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// One rank's side of a collective that continues while the rank computes.
pub(super) struct Started {
    threads: Arc<Threads>,
    call: Call,
    /// The parts of an all-to-all in which they are unequal.
    counts: Option<Counts>,
    meeting: Arc<Meeting>,
    /// Bytes of the vector, and the blocks of work that it consists of.
    bytes: usize,
    blocks: usize,
    /// Whether the meter has counted what this rank sent.
    counted: Cell<bool>,
}

impl Started {
    /// `last`: whether this rank was the last to come.
    pub fn new(
        threads: Arc<Threads>,
        call: Call,
        counts: Option<Counts>,
        meeting: Arc<Meeting>,
        last: bool,
    ) -> Started {
        let size = threads.membership.size();
        let bytes = call.bytes(size);
        // In an all-to-all a block is what one rank sends to one.
        let blocks = match counts {
            Some(_) => size * size,
            None => meeting.exchange.blocks(bytes),
        };
        let started = Started {
            blocks,
            bytes,
            threads,
            call,
            counts,
            meeting,
            counted: Cell::new(false),
        };
        if last {
            started.threads.wake_others();
            started.note_end();
        }
        started
    }

    fn is_done(&self) -> bool {
        self.meeting.exchange.all_published() && self.meeting.exchange.all_done(self.blocks)
    }

    /// Does up to `most` blocks, and wakes ranks that wait for the last one.
    fn work(&self, most: usize) {
        let exchange = &self.meeting.exchange;
        let rank = self.threads.membership.rank;
        match &self.counts {
            Some(counts) => exchange.deliver(rank, &self.call, counts, most),
            None => exchange.work(rank, &self.call, self.bytes, most),
        }
        self.note_end();
    }

    /// Notes when the work is done, and wakes ranks that wait for that.
    fn note_end(&self) {
        if self.is_done() {
            self.meeting.reduced.get_or_init(Instant::now);
            if self.meeting.exchange.has_sleepers() {
                self.threads.wake_sleepers();
            }
        }
    }
}

impl Progress for Started {
    fn test(&mut self) -> Result<bool> {
        let Started { threads, call, meeting, .. } = &*self;
        let mut state = threads.world.lock();
        state.stop_if_failed(threads.me(), call)?;
        threads.world.stop_if_ended(threads.me(), &mut state, call, |_| {
            threads.missing(&meeting.exchange)
        })?;
        drop(state);
        if !meeting.exchange.all_published() {
            return Ok(false);
        }
        // A share is what each rank has to do when all of them come at the same time.
        self.work(self.blocks.div_ceil(threads.membership.size()));
        Ok(self.is_done() && self.meeting.over.get().is_none_or(|&over| over <= Instant::now()))
    }

    fn wait(&mut self) -> Result<Instant> {
        let Started { threads, call, meeting, .. } = &*self;
        let world = &threads.world;
        let me = threads.me();
        let exchange = &meeting.exchange;
        let state = world.lock();
        state.stop_if_failed(me, call)?;
        drop(world.wait(
            me,
            state,
            call,
            |_| exchange.all_published(),
            |_| threads.missing(exchange),
        )?);
        self.work(usize::MAX);
        // A rank that has taken a block does not stop before the block is done.
        threads.wait_all_done(exchange, false, self.blocks);
        if !self.counted.replace(true) {
            threads.membership.meter.sent(exchange.sent(threads.membership.rank));
        }
        let over = meeting.over.get().copied();
        let reduced = *meeting.reduced.get_or_init(Instant::now);
        world.sleep_until(me, world.lock(), call, over)?;
        Ok(over.map_or(reduced, |over| over.max(reduced)))
    }

    fn take(self: Box<Self>) -> Box<dyn Any> {
        let rank = self.threads.membership.rank;
        let mut vector = self.meeting.exchange.reclaim(rank, self.blocks);
        if let Some(counts) = &self.counts {
            vector.keep(counts.room(rank));
        } else if self.call.kind == CallKind::StartReduceScatter {
            vector.keep(rank * self.call.len..(rank + 1) * self.call.len);
        }
        vector
    }
}
