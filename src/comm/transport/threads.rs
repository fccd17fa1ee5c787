//! The in-process transport: ranks are threads, and a collective is a meeting.
//!
//! Each rank publishes where its slice is, waits until all ranks have come, and reads what it needs
//! from the other slices. [`Threads::join`] is the one primitive, and every collective is a loop
//! over ranks in rank order. `exchange.rs` explains how ranks share slices, and `world.rs` how they
//! wait.
//!
//! Reading order: this file, then `started.rs` (collectives that continue while ranks compute).

mod started;

use super::exchange::{Exchange, Shared, SharedSlice};
use super::meetings::{GroupId, Key, Lane, Mail, Meeting};
use super::sync::MutexGuard;
use super::sync::atomic::{AtomicU64, Ordering::*};
use super::world::{ThreadWorld, WorldState};
use super::{Buffer, Membership, Progress, Transport};
use crate::comm::call::{Call, CallKind};
use crate::comm::element::reduce_in_rank_order;
use crate::comm::uneven::Counts;
use crate::comm::{Comm, CommError, Link, Result, link};
use started::Started;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

impl ThreadWorld {
    /// The world's handle for `rank`.
    pub fn comm(self: &Arc<ThreadWorld>, rank: usize) -> Comm {
        let membership =
            Membership::of_world(rank, self.size(), self.recorders[rank].clone(), true);
        Comm::new(Arc::new(Threads {
            world: self.clone(),
            group: 0,
            membership,
            calls: AtomicU64::new(0),
        }))
    }
}

/// One rank's end of one group.
struct Threads {
    world: Arc<ThreadWorld>,
    group: GroupId,
    membership: Membership,
    /// Collectives so far in this group.
    calls: AtomicU64,
}

impl Threads {
    /// This rank's number in the world.
    fn me(&self) -> usize {
        self.membership.in_world()
    }

    /// The simulated link of the group's collectives.
    fn link(&self) -> Option<Link> {
        self.world.options.link_between(&self.membership.members)
    }

    /// Enters the next meeting of the group.
    fn enter(&self, call: &Call) -> Result<(Key, MutexGuard<'_, WorldState>, Arc<Meeting>)> {
        let key = (self.group, self.calls.fetch_add(1, Relaxed));
        let mut state = self.world.enter(self.me(), call)?;
        let (first, meeting) = state.meetings.open(key, call, self.membership.size());
        if !first.matches(call) {
            let mine = call.info(self.membership.recorder.current());
            let calls = Box::new([mine, first.info(None)]);
            let alike = call.is_like(&first);
            return Err(self.world.broken(self.me(), &mut state, |report| {
                CommError::CallsDiffer { calls, alike, report }
            }));
        }
        Ok((key, state, meeting))
    }

    /// Ends every rank's wait if this rank is the last to come. Returns whether it is.
    fn complete(&self, state: &mut WorldState, call: &Call, key: Key, meeting: &Meeting) -> bool {
        if !meeting.exchange.all_published() {
            return false;
        }
        state.meetings.close(key);
        state.mark_running(&self.membership.members);
        if let Some(link) = self.link() {
            let now = Instant::now();
            let size = self.membership.size();
            let start = state.link_free.get(&self.group).map_or(now, |&free| free.max(now));
            let over =
                start + link::duration(link.collective_seconds(call.kind, size, call.bytes(size)));
            state.link_free.insert(self.group, over);
            meeting.over.get_or_init(|| over);
        }
        true
    }

    /// Waits until all members have come. Returns whether this rank was the last, which has not
    /// woken the others yet.
    fn wait_all_published(
        &self,
        mut state: MutexGuard<'_, WorldState>,
        call: &Call,
        key: Key,
        meeting: &Meeting,
    ) -> Result<bool> {
        if self.complete(&mut state, call, key, meeting) {
            return Ok(true);
        }
        drop(state);
        self.world.spin(|| meeting.exchange.all_published());
        if !meeting.exchange.all_published() {
            let missing = |_: &WorldState| self.missing(&meeting.exchange);
            drop(self.world.wait(
                self.me(),
                self.world.lock(),
                call,
                |_| meeting.exchange.all_published(),
                missing,
            )?);
        }
        Ok(false)
    }

    /// The members that have not come, by their numbers in the world.
    fn missing(&self, exchange: &Exchange) -> Vec<usize> {
        let members = self.membership.members.iter().enumerate();
        members
            .filter(|&(rank, _)| !exchange.has_published(rank))
            .map(|(_, &member)| member)
            .collect()
    }

    /// The queue of messages for `call`, which receives.
    fn lane(&self, call: &Call) -> Lane {
        (self.group, call.peer().in_world, self.me(), call.tag)
    }

    fn wake_others(&self) {
        for &member in self.membership.members.iter() {
            if member != self.me() {
                self.world.wake(member);
            }
        }
    }

    /// Waits until all `parts` of the work are done. `wake`: the other ranks do not know yet that
    /// all have come.
    fn wait_all_done(&self, exchange: &Exchange, wake: bool, parts: usize) {
        let at_once = exchange.all_done(parts);
        if !at_once {
            self.world.spin(|| exchange.all_done(parts));
        }
        if !exchange.all_done(parts) {
            let mut state = self.world.lock();
            exchange.begin_sleep();
            while !exchange.all_done(parts) {
                state = self.world.sleep(self.me(), state, None);
            }
            exchange.end_sleep();
        }
        // The rank that did the last part finds all parts done at once.
        if wake || at_once && exchange.has_sleepers() {
            self.wake_sleepers();
        }
    }

    /// Wakes the other ranks, also one that holds the lock and is about to fall asleep.
    fn wake_sleepers(&self) {
        drop(self.world.lock());
        self.wake_others();
    }

    /// Lends a slice to the other ranks, which read it. `work` does this rank's part.
    fn read(&self, call: &Call, mine: &[u8], mut work: impl FnMut(&Shared)) -> Result<()> {
        self.join(call, SharedSlice::Read(mine, &mut work))
    }

    /// Lends a slice to the other ranks. Returns when all ranks have come and have done their parts
    /// of the work, and on a simulated link when the link has carried the collective.
    fn join(&self, call: &Call, slice: SharedSlice) -> Result<()> {
        let (key, state, meeting) = self.enter(call)?;
        let exchange = &meeting.exchange;
        // Help with a single block is not worth waking the other ranks: they wake up when it is
        // done.
        let alone =
            matches!(&slice, SharedSlice::Reduce(mine, _) if exchange.blocks(mine.len()) <= 1);
        let last = Cell::new(false);
        let wait_all_published = || {
            last.set(self.wait_all_published(state, call, key, &meeting)?);
            if last.get() && !alone {
                self.wake_others();
            }
            Ok(())
        };
        let wait_all_done = |parts| self.wait_all_done(exchange, last.get() && alone, parts);
        exchange.share(self.membership.rank, slice, wait_all_published, wait_all_done)?;
        self.membership.meter.sent(exchange.sent(self.membership.rank));
        if self.link().is_some() {
            return self.world.sleep_until(
                self.me(),
                self.world.lock(),
                call,
                meeting.over.get().copied(),
            );
        }
        if exchange.retire() {
            self.world.lock().meetings.keep(meeting);
        }
        Ok(())
    }
}

impl Transport for Threads {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn collective(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()> {
        let rank = self.membership.rank;
        let size = self.membership.size();
        let root = call.peer.map_or(0, |peer| peer.rank);
        let part = |part: usize, bytes: usize| part * bytes..(part + 1) * bytes;
        match call.kind {
            CallKind::Barrier => self.read(call, &[], |_| ()),
            CallKind::AllReduce | CallKind::Reduce => {
                self.join(call, SharedSlice::Reduce(recv, call))
            }
            CallKind::Broadcast if rank == root => self.read(call, recv, |_| ()),
            CallKind::Broadcast => {
                self.read(call, &[], |all| recv.copy_from_slice(all.read(root, 0..recv.len())))
            }
            CallKind::ReduceScatter => {
                let part = part(rank, recv.len());
                let op = call.op();
                self.read(call, send, |all| {
                    let of = |rank, range: Range<usize>| {
                        all.read(rank, part.start + range.start..part.start + range.end)
                    };
                    by_type!(call.dtype, T => reduce_in_rank_order::<T>(op, size, &of, recv));
                })
            }
            CallKind::Scatter => {
                let part = part(rank, recv.len());
                self.read(call, send, |all| recv.copy_from_slice(all.read(root, part.clone())))
            }
            // All other collectives fill `recv` with the same part of every rank's slice, in rank
            // order.
            _ => {
                let part = if call.kind == CallKind::AllToAll {
                    part(rank, send.len() / size)
                } else {
                    0..send.len()
                };
                self.read(call, send, |all| {
                    for (rank, to) in recv.chunks_exact_mut(part.len().max(1)).enumerate() {
                        to.copy_from_slice(all.read(rank, part.clone()));
                    }
                })
            }
        }
    }

    fn exchange(&self, call: &Call, counts: &Counts, send: &[u8], recv: &mut [u8]) -> Result<()> {
        let me = self.membership.rank;
        let bytes = |elements: Range<usize>| {
            let size = call.dtype.size();
            elements.start * size..elements.end * size
        };
        self.read(call, send, |all| {
            for from in 0..self.membership.size() {
                let to = &mut recv[bytes(counts.place(from, me))];
                to.copy_from_slice(all.read(from, bytes(counts.part(from, me))));
            }
        })
    }

    fn start(
        self: Arc<Self>,
        call: &Call,
        counts: Option<Counts>,
        data: Box<dyn Buffer>,
    ) -> Result<Box<dyn Progress>> {
        let (key, mut state, meeting) = self.enter(call)?;
        meeting.exchange.publish_owned(self.membership.rank, data);
        let last = self.complete(&mut state, call, key, &meeting);
        drop(state);
        Ok(Box::new(Started::new(self, *call, counts, meeting, last)))
    }

    fn send(&self, call: &Call, data: &[u8]) -> Result<()> {
        let from = self.me();
        let to = call.peer().in_world;
        let message = self.world.copy(data);
        let mut state = self.world.enter(from, call)?;
        let arrives = self.world.options.link_between(&[from, to]).map(|link| {
            let now = Instant::now();
            let transfer = link::duration(link.transfer_seconds(data.len()));
            let left = state.ranks[from].free_out.map_or(now, |free| free.max(now)) + transfer;
            state.ranks[from].free_out = Some(left);
            let arrival = left + link::duration(link.latency);
            let arrival =
                state.ranks[to].free_in.map_or(arrival, |free| arrival.max(free + transfer));
            *state.ranks[to].free_in.insert(arrival)
        });
        let mail = Mail { call: *call, message, arrives };
        state.mail.entry((self.group, from, to, call.tag)).or_default().push_back(mail);
        if to != from {
            self.membership.meter.sent(data.len() as u64);
        }
        // The receiver may be waiting for this message, and is then no longer stuck.
        state.mark_running(&[to]);
        drop(state);
        self.world.wake_for_mail(to);
        Ok(())
    }

    fn recv(&self, call: &Call, data: &mut [u8]) -> Result<()> {
        let from = call.peer().in_world;
        let lane = self.lane(call);
        let has_mail = |state: &WorldState| state.first_mail(&lane).is_some();
        let mut state = self.world.enter(self.me(), call)?;
        if !has_mail(&state) {
            state = self.world.spin_for_mail(self.me(), state);
        }
        let mut state = self.world.wait(self.me(), state, call, has_mail, |_| vec![from])?;
        let mail = state.mail.get_mut(&lane).and_then(|queue| queue.pop_front());
        let Mail { call: sent, message, arrives } = mail.expect("wait returns when there is mail");
        if !sent.fits(call) {
            let call = call.info(self.membership.recorder.current());
            return Err(self.world.broken(self.me(), &mut state, |report| {
                CommError::MessageDiffers {
                    from,
                    len: sent.len,
                    sent: Some(Box::new(sent.info(None))),
                    call: Box::new(call),
                    report,
                }
            }));
        }
        self.world.sleep_until(self.me(), state, call, arrives)?;
        data.copy_from_slice(&message);
        self.world.recycle(message);
        Ok(())
    }

    fn probe(&self, call: &Call) -> Result<bool> {
        let mut state = self.world.lock();
        state.stop_if_failed(self.me(), call)?;
        if let Some(mail) = state.first_mail(&self.lane(call)) {
            return Ok(mail.arrives.is_none_or(|arrives| arrives <= Instant::now()));
        }
        self.world
            .stop_if_ended(self.me(), &mut state, call, |_| vec![call.peer().in_world])?;
        Ok(false)
    }

    fn group(&self, _: &Call, members: &[usize]) -> Result<Arc<dyn Transport>> {
        // The first member to come here gives the group its number.
        let key = (self.group, self.calls.load(Relaxed), members.iter().min().copied());
        let mut state = self.world.lock();
        let next = state.splits.len() as GroupId + 1;
        let group = *state.splits.entry(key).or_insert(next);
        drop(state);
        let membership = self.membership.of_group(members, true);
        Ok(Arc::new(Threads {
            world: self.world.clone(),
            group,
            membership,
            calls: AtomicU64::new(0),
        }))
    }
}
