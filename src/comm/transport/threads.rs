//! The in-process transport: ranks are threads, and a collective is a meeting.
//!
//! Each rank puts down where its slice lies, waits until all have come, and reads what it needs from the others' slices:
//! [`Threads::share`] and [`Threads::reduce`] are the two primitives, and every collective is one of them plus a loop over
//! ranks in rank order. How ranks lend each other slices is in `exchange.rs`, and how they wait in `run.rs`.
//!
//! Reading order: this file, then `started.rs` (collectives that go on while ranks compute).

mod started;

use super::Transport;
use super::exchange::{Exchange, Shared};
use super::run::{FITTING, Run, State, different};
use super::sync::MutexGuard;
use super::sync::atomic::{AtomicU64, Ordering::*};
use super::{Buffer, UnderWay};
use crate::comm::call::Call;
use crate::comm::element::{Reduction, reduce_in_rank_order};
use crate::comm::link;
use crate::comm::meter::{Meter, Meters, even_part};
use crate::comm::recorder::Recorder;
use crate::comm::{Comm, Result};
use started::Started;
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A group's number: the world is 0, splits make more.
pub(super) type GroupId = u64;

/// What pairs the ranks' calls: the group, and the number of the call there.
type Key = (GroupId, u64);

/// Where messages queue up: group, sender and receiver (numbers in the world), tag.
pub(super) type Lane = (GroupId, usize, usize, u16);

/// The collectives to which some have come and some have not.
#[derive(Default)]
pub(super) struct Meetings {
    open: Vec<(Key, Call, Arc<Meeting>)>,
    /// Those that are over, for the next ones: nothing is allocated for a call.
    spare: Vec<Arc<Meeting>>,
}

/// One collective of one group.
struct Meeting {
    exchange: Exchange,
    /// On a link, when it is over; known when all have come.
    over: OnceLock<Instant>,
    /// When its last block was reduced, if it goes on while ranks compute.
    reduced: OnceLock<Instant>,
}

/// What was sent, and how the sender called it.
pub(super) struct Message {
    pub call: Call,
    bytes: Vec<u8>,
    /// On a link, when the receiver may have it.
    arrives: Option<Instant>,
}

impl Meeting {
    fn new(size: usize) -> Arc<Meeting> {
        Arc::new(Meeting { exchange: Exchange::new(size), over: OnceLock::new(), reduced: OnceLock::new() })
    }
}

impl Meetings {
    /// The meeting for a call, and how the first to come called it.
    fn open(&mut self, key: Key, call: &Call, size: usize) -> (Call, Arc<Meeting>) {
        if let Some((_, first, meeting)) = self.open.iter().find(|(other, ..)| *other == key) {
            return (*first, meeting.clone());
        }
        let fits = |meeting: &Arc<Meeting>| meeting.exchange.ranks() == size;
        let meeting = match self.spare.iter().position(fits) {
            Some(i) => self.spare.swap_remove(i),
            None => {
                // Two: a rank may come to the next meeting before the last one has left this.
                self.spare.push(Meeting::new(size));
                Meeting::new(size)
            }
        };
        self.open.push((key, *call, meeting.clone()));
        (*call, meeting)
    }

    fn close(&mut self, key: Key) {
        if let Some(i) = self.open.iter().position(|(other, ..)| *other == key) {
            self.open.swap_remove(i);
        }
    }
}

impl Run {
    /// The world's handle for `rank`.
    pub fn comm(self: &Arc<Run>, rank: usize) -> Comm {
        let meters = Meters::default();
        Comm::new(Arc::new(Threads {
            run: self.clone(),
            group: 0,
            members: (0..self.size()).collect(),
            rank,
            calls: AtomicU64::new(0),
            meter: meters.add(),
            meters,
        }))
    }
}

/// One rank's place in one group.
struct Threads {
    run: Arc<Run>,
    group: GroupId,
    /// The members' numbers in the world, in group order.
    members: Vec<usize>,
    rank: usize,
    /// Collectives so far in this group.
    calls: AtomicU64,
    meter: Arc<Meter>,
    meters: Meters,
}

impl Threads {
    /// This rank's number in the world.
    fn me(&self) -> usize {
        self.members[self.rank]
    }

    /// Comes to the next meeting of the group.
    fn enter(&self, call: &Call) -> Result<(Key, MutexGuard<'_, State>, Arc<Meeting>)> {
        let key = (self.group, self.calls.fetch_add(1, Relaxed));
        let mut state = self.run.enter(self.me(), call)?;
        let (first, meeting) = state.meetings.open(key, call, self.members.len());
        if !first.matches(call) {
            let what = format!("the ranks are in different calls: {call} and {first}");
            return Err(self.run.broken(self.me(), &mut state, &what, different(call.is_like(&first))));
        }
        Ok((key, state, meeting))
    }

    /// If this rank is the last to come: everyone's wait is over. Returns whether it is.
    fn complete(&self, state: &mut State, call: &Call, key: Key, meeting: &Meeting) -> bool {
        if !meeting.exchange.is_complete() {
            return false;
        }
        state.meetings.close(key);
        state.may_go_on(&self.members);
        if let Some(link) = self.run.link {
            let (now, size) = (Instant::now(), self.members.len());
            let start = state.link_free.get(&self.group).map_or(now, |&free| free.max(now));
            let over = start + link::duration(link.collective_seconds(call.kind, size, call.bytes(size)));
            state.link_free.insert(self.group, over);
            meeting.over.get_or_init(|| over);
        }
        true
    }

    /// Waits until all members have come. Returns whether this rank was the last, which has not told the others yet.
    fn come(&self, mut state: MutexGuard<'_, State>, call: &Call, key: Key, meeting: &Meeting) -> Result<bool> {
        if self.complete(&mut state, call, key, meeting) {
            return Ok(true);
        }
        drop(state);
        self.run.spin(|| meeting.exchange.is_complete());
        if meeting.exchange.is_complete() {
            return Ok(false);
        }
        let state = self.run.lock();
        let missing = |_: &State| self.missing(&meeting.exchange);
        drop(self.run.wait(self.me(), state, call, |_| meeting.exchange.is_complete(), missing)?);
        Ok(false)
    }

    /// The members that have not come, by their numbers in the world.
    fn missing(&self, exchange: &Exchange) -> Vec<usize> {
        (0..self.members.len()).filter(|&rank| !exchange.has(rank)).map(|rank| self.members[rank]).collect()
    }

    /// Where messages from member `from` to this rank queue up.
    fn lane_from(&self, call: &Call, from: usize) -> Lane {
        (self.group, self.members[from], self.me(), call.tag)
    }

    fn ring_others(&self) {
        self.members.iter().filter(|&&member| member != self.me()).for_each(|&member| self.run.ring(member));
    }

    /// Waits until all parts of the work are done. `ring`: the others do not know yet that all have come.
    fn stay(&self, exchange: &Exchange, ring: bool, is_done: impl Fn() -> bool) {
        let at_once = is_done();
        if !at_once {
            self.run.spin(&is_done);
        }
        if !is_done() {
            let mut state = self.run.lock();
            exchange.falls_asleep();
            while !is_done() {
                state = self.run.sleep(self.me(), state, None);
            }
            exchange.wakes_up();
        }
        // Whoever did the last part finds all done at once.
        if ring || at_once && exchange.has_sleepers() {
            self.ring_sleepers();
        }
    }

    /// Wakes the others, and those who are about to fall asleep, and have the lock.
    fn ring_sleepers(&self) {
        drop(self.run.lock());
        self.ring_others();
    }

    /// The end of a meeting, for this rank: on a link, when the link has carried it.
    fn leave(&self, call: &Call, meeting: Arc<Meeting>) -> Result<()> {
        if self.run.link.is_some() {
            let over = meeting.over.get().copied();
            return self.run.sleep_until(self.me(), self.run.lock(), call, over).map(drop);
        }
        if meeting.exchange.leave() {
            self.run.lock().meetings.spare.push(meeting);
        }
        Ok(())
    }

    /// Lends `mine` to the others; when all have come, does `work` on all slices; returns when all have done so.
    fn share(&self, call: &Call, mine: &[u8], work: impl FnOnce(&Shared)) -> Result<()> {
        let (key, state, meeting) = self.enter(call)?;
        let come = || {
            if self.come(state, call, key, &meeting)? {
                self.ring_others();
            }
            Ok(())
        };
        let exchange = &meeting.exchange;
        exchange.share(self.rank, mine, come, work, || self.stay(exchange, false, || exchange.is_shared()))?;
        self.leave(call, meeting)
    }

    /// Reduces all ranks' `data`, in rank order, into that of the ranks `into`.
    fn reduce_in_place(&self, call: &Call, data: &mut [u8], into: Range<usize>) -> Result<()> {
        let (key, state, meeting) = self.enter(call)?;
        let (exchange, bytes) = (&meeting.exchange, data.len());
        // The others' help with one block is not worth waking them up: they hear when it is done.
        let (alone, last) = (exchange.blocks(bytes) <= 1, Cell::new(false));
        let come = || {
            last.set(self.come(state, call, key, &meeting)?);
            if last.get() && !alone {
                self.ring_others();
            }
            Ok(())
        };
        let stay = || self.stay(exchange, last.get() && alone, || exchange.is_reduced(bytes));
        exchange.reduce(self.rank, data, reduction(call, into), come, stay)?;
        self.leave(call, meeting)
    }

    /// The bytes of `part` when `len` elements are dealt out to the members as evenly as possible.
    fn part(&self, call: &Call, part: usize, len: usize) -> Range<usize> {
        let (elements, bytes) = (even_part(len, part, self.members.len()), call.dtype.size());
        elements.start * bytes..elements.end * bytes
    }
}

fn reduction(call: &Call, into: Range<usize>) -> Reduction {
    Reduction { dtype: call.dtype, op: call.op.expect("a reducing call names its reduction"), into }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn members(&self) -> &[usize] {
        &self.members
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn meters(&self) -> &Meters {
        &self.meters
    }

    fn recorder(&self) -> &Recorder {
        &self.run.recorders[self.me()]
    }

    fn adds_in_rank_order(&self) -> bool {
        true
    }

    fn barrier(&self, call: &Call) -> Result<()> {
        self.share(call, &[], |_| ())
    }

    fn send(&self, call: &Call, data: &[u8], to: usize) -> Result<()> {
        let (from, to, bytes) = (self.me(), self.members[to], self.run.copy(data));
        let mut state = self.run.enter(from, call)?;
        let arrives = self.run.link.map(|link| {
            let (now, transfer) = (Instant::now(), link::duration(link.transfer_seconds(data.len())));
            let left = state.ranks[from].free_out.map_or(now, |free| free.max(now)) + transfer;
            state.ranks[from].free_out = Some(left);
            let arrival = left + link::duration(link.latency);
            let arrival = state.ranks[to].free_in.map_or(arrival, |free| arrival.max(free + transfer));
            *state.ranks[to].free_in.insert(arrival)
        });
        let message = Message { call: *call, bytes, arrives };
        state.mail.entry((self.group, from, to, call.tag)).or_default().push_back(message);
        // The receiver may be waiting for exactly this; it is no longer stuck.
        state.may_go_on(&[to]);
        drop(state);
        self.run.ring_for_mail(to);
        Ok(())
    }

    fn recv(&self, call: &Call, data: &mut [u8], from: usize) -> Result<()> {
        let (from, lane) = (self.members[from], self.lane_from(call, from));
        let has_mail = |state: &State| state.first_mail(&lane).is_some();
        let mut state = self.run.enter(self.me(), call)?;
        if !has_mail(&state) {
            state = self.run.spin_for_mail(self.me(), state);
        }
        let mut state = self.run.wait(self.me(), state, call, has_mail, |_| vec![from])?;
        let message = state.mail.get_mut(&lane).and_then(|queue| queue.pop_front());
        let Message { call: sent, bytes, arrives } = message.expect("wait returns when there is mail");
        if !sent.fits(call) {
            let what = format!("the message does not fit: {sent} on rank {from} met {call}");
            return Err(self.run.broken(self.me(), &mut state, &what, FITTING));
        }
        drop(self.run.sleep_until(self.me(), state, call, arrives)?);
        data.copy_from_slice(&bytes);
        self.run.recycle(bytes);
        Ok(())
    }

    fn probe(&self, call: &Call, from: usize) -> Result<bool> {
        let lane = self.lane_from(call, from);
        let mut state = self.run.lock();
        state.stop_if_failed(self.me(), call)?;
        if let Some(message) = state.first_mail(&lane) {
            return Ok(message.arrives.is_none_or(|arrives| arrives <= Instant::now()));
        }
        self.run.stop_if_ended(self.me(), &mut state, call, |_| vec![self.members[from]])?;
        Ok(false)
    }

    fn all_reduce(&self, call: &Call, data: &mut [u8]) -> Result<()> {
        self.reduce_in_place(call, data, 0..self.members.len())
    }

    fn start(self: Arc<Self>, call: &Call, data: Box<dyn Buffer>) -> Result<Box<dyn UnderWay>> {
        let (key, mut state, meeting) = self.enter(call)?;
        meeting.exchange.hand_over(self.rank, data);
        let last = self.complete(&mut state, call, key, &meeting);
        drop(state);
        Ok(Box::new(Started::new(self, *call, meeting, last)))
    }

    fn reduce(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        self.reduce_in_place(call, data, root..root + 1)
    }

    fn broadcast(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        if self.rank == root {
            return self.share(call, data, |_| ());
        }
        self.share(call, &[], |all| data.copy_from_slice(all.of(root)))
    }

    fn all_gather(&self, call: &Call, mine: &[u8], all: &mut [u8]) -> Result<()> {
        self.share(call, mine, |brought| {
            for rank in 0..self.members.len() {
                all[self.part(call, rank, call.len * self.members.len())].copy_from_slice(brought.of(rank));
            }
        })
    }

    fn reduce_scatter(&self, call: &Call, all: &[u8], mine: &mut [u8]) -> Result<()> {
        let part = self.part(call, self.rank, call.len * self.members.len());
        let Reduction { dtype, op, .. } = reduction(call, 0..0);
        self.share(call, all, |brought| {
            let of = |rank| &brought.of(rank)[part.clone()];
            reduce_in_rank_order(dtype, op, self.members.len(), &of, mine);
        })
    }

    fn scatter(&self, call: &Call, all: &[u8], mine: &mut [u8], root: usize) -> Result<()> {
        let part = self.part(call, self.rank, call.len * self.members.len());
        self.share(call, all, |brought| mine.copy_from_slice(&brought.of(root)[part]))
    }

    fn gather(&self, call: &Call, mine: &[u8], all: &mut [u8], root: usize) -> Result<()> {
        self.share(call, mine, |brought| {
            for rank in (0..self.members.len()).filter(|_| self.rank == root) {
                all[self.part(call, rank, call.len * self.members.len())].copy_from_slice(brought.of(rank));
            }
        })
    }

    fn all_to_all(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()> {
        let len = call.len * self.members.len();
        let mine = self.part(call, self.rank, len);
        self.share(call, send, |brought| {
            for rank in 0..self.members.len() {
                recv[self.part(call, rank, len)].copy_from_slice(&brought.of(rank)[mine.clone()]);
            }
        })
    }

    fn split(&self, call: &Call, color: u64, key: i64) -> Result<Arc<dyn Transport>> {
        let number = self.calls.load(Relaxed);
        let mut wishes = vec![[0u64; 2]; self.members.len()];
        self.share(call, bytemuck::cast_slice(&[color, key as u64]), |brought| {
            wishes.iter_mut().enumerate().for_each(|(r, wish)| *wish = bytemuck::pod_read_unaligned(brought.of(r)));
        })?;
        let mut chosen: Vec<usize> = (0..wishes.len()).filter(|&r| wishes[r][0] == color).collect();
        chosen.sort_by_key(|&r| (wishes[r][1] as i64, r));

        // The first of a color to come here gives its group a number; the world is group 0.
        let mut state = self.run.lock();
        let next = state.splits.len() as GroupId + 1;
        let group = *state.splits.entry((self.group, number, color)).or_insert(next);
        drop(state);

        let rank = chosen.iter().position(|&r| r == self.rank).expect("this rank chose its own color");
        Ok(Arc::new(Threads {
            run: self.run.clone(),
            group,
            members: chosen.iter().map(|&r| self.members[r]).collect(),
            rank,
            calls: AtomicU64::new(0),
            meter: self.meters.add(),
            meters: self.meters.clone(),
        }))
    }
}
