//! The in-process transport: ranks are threads, and a collective is a meeting.
//!
//! Each rank puts down what it brings, waits until all have come, and reads what it needs: [`Threads::meet`] is the one
//! primitive, and every collective is one or two meetings plus a loop over ranks in rank order. All ranks share one lock
//! ([`Job`]), under which it is always known what every rank is doing; so a meeting that can never be complete is an error
//! at once, not a hang: because a rank has ended, because two ranks came with different calls, or because all ranks wait.

use super::call::Call;
use super::element::reduce_in_rank_order;
use super::link::{self, Link};
use super::meter::{Meter, even_part};
use super::pending::{Buffer, UnderWay};
use super::reduction::Reduction;
use super::transport::Transport;
use super::{Comm, CommError, Options, Result};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// What all rank threads of one run share.
pub(crate) struct Job {
    state: Mutex<State>,
    /// One for each rank, so that only those are woken whose wait is over.
    wake: Vec<Condvar>,
    /// What communication takes, if not only what it really takes.
    link: Option<Link>,
}

struct State {
    ranks: Vec<Rank>,
    /// Why the run cannot go on, once it cannot.
    failure: Option<String>,
    meetings: HashMap<Key, Meeting>,
    /// Messages under way, by group, sender and receiver (numbers in the world).
    mail: HashMap<(Group, usize, usize), VecDeque<Message>>,
    /// The groups that splits have made: by group, number of the split there, and color.
    splits: HashMap<(Group, u64, u64), Group>,
    /// When each group's last collective has left its link.
    link_free: HashMap<Group, Instant>,
}

type Group = u64;

/// What pairs the ranks' calls: the group, and the number of the call there.
type Key = (Group, u64);

/// What was sent, and how the sender called it.
struct Message {
    call: Call,
    bytes: Vec<u8>,
    /// On a link, when the receiver may have it.
    arrives: Option<Instant>,
}

struct Rank {
    doing: Doing,
    /// Communication calls that it has come to.
    calls: u64,
    last: Option<Call>,
    /// When its last message has left its link.
    link_free: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Running,
    Waiting,
    Ended,
}

/// One collective of one group, from its first arrival to its last departure.
struct Meeting {
    /// How each rank called it, and what it brought.
    arrived: Vec<Option<(Call, Arc<Vec<u8>>)>>,
    departed: usize,
    /// On a link, when it is over; known when all have come.
    over: Option<Instant>,
    /// What those who go on meanwhile have in common.
    started: Option<Arc<Started>>,
}

/// An all-reduce that goes on while its ranks compute.
struct Started {
    reduction: Reduction,
    /// On a link, when it is over; known when all have come.
    over: OnceLock<Instant>,
    /// When its last block was reduced.
    reduced: OnceLock<Instant>,
}

impl Meeting {
    fn new(size: usize) -> Meeting {
        Meeting { arrived: vec![None; size], departed: 0, over: None, started: None }
    }

    fn is_complete(&self) -> bool {
        self.arrived.iter().all(Option::is_some)
    }
}

impl Job {
    pub fn new(size: usize, options: &Options) -> Arc<Job> {
        let rank = |_| Rank { doing: Doing::Running, calls: 0, last: None, link_free: None };
        let ranks = (0..size).map(rank).collect();
        Arc::new(Job {
            state: Mutex::new(State {
                ranks,
                failure: None,
                meetings: HashMap::new(),
                mail: HashMap::new(),
                splits: HashMap::new(),
                link_free: HashMap::new(),
            }),
            wake: (0..size).map(|_| Condvar::new()).collect(),
            link: options.link,
        })
    }

    /// The world's handle for `rank`.
    pub fn comm(self: &Arc<Job>, rank: usize) -> Comm {
        Comm(Arc::new(Threads {
            job: self.clone(),
            group: 0,
            members: (0..self.wake.len()).collect(),
            rank,
            calls: AtomicU64::new(0),
            meter: Arc::new(Meter::default()),
        }))
    }

    /// To be called when a rank's closure is over; `error` is why it failed, if it did.
    /// Returns whether that error is what ended the run, rather than a consequence of an earlier one.
    pub fn ended(&self, rank: usize, error: Option<String>) -> bool {
        let mut state = self.lock();
        state.ranks[rank].doing = Doing::Ended;
        let first = error.is_some() && state.failure.is_none();
        if let Some(error) = error {
            state.failure.get_or_insert(format!("rank {rank} failed: {error}"));
        }
        drop(state);
        self.wake.iter().for_each(Condvar::notify_all);
        first
    }

    /// Why the run broke, if it did.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// A panic while the lock is held leaves no half-made change behind that matters: the run is failing anyway.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One rank's place in one group.
struct Threads {
    job: Arc<Job>,
    group: Group,
    /// The members' numbers in the world, in group order.
    members: Vec<usize>,
    rank: usize,
    /// Collectives so far in this group: what pairs the ranks' calls.
    calls: AtomicU64,
    meter: Arc<Meter>,
}

impl Threads {
    /// Brings `mine` and returns what everyone brought, in rank order, when all are there, and on a link when the call is over.
    fn meet(&self, call: &Call, mine: Vec<u8>) -> Result<Vec<Arc<Vec<u8>>>> {
        let (key, state) = self.arrive(call, mine, true)?;
        self.stay(call, key, state)
    }

    /// Comes to a meeting; one that is `on_link` takes the call's time there.
    fn arrive(&self, call: &Call, mine: Vec<u8>, on_link: bool) -> Result<(Key, MutexGuard<'_, State>)> {
        let size = self.members.len();
        let key = (self.group, self.calls.fetch_add(1, Relaxed));
        let mut state = self.come(call)?;

        let meeting = state.meetings.entry(key).or_insert_with(|| Meeting::new(size));
        if let Some((other, _)) = meeting.arrived.iter().flatten().find(|(other, _)| !other.matches(call)) {
            let what = format!("the ranks are in different calls: {call} and {other}");
            return Err(self.broken(&mut state, &what, DIFFERENT_CALLS));
        }
        meeting.arrived[self.rank] = Some((call.clone(), Arc::new(mine)));
        if meeting.is_complete() {
            let over = self.job.link.filter(|_| on_link).map(|link| {
                let start = Instant::now().max(state.link_free.get(&self.group).copied().unwrap_or_else(Instant::now));
                start + link::duration(link.collective_seconds(call.kind, size, call.bytes(size)))
            });
            if let Some(over) = over {
                state.link_free.insert(self.group, over);
            }
            state.meetings.get_mut(&key).expect("it was just there").over = over;
            for &member in &self.members {
                state.ranks[member].doing = Doing::Running;
                self.job.wake[member].notify_all();
            }
        }
        Ok((key, state))
    }

    /// Stays at a meeting until all have come and it is over.
    fn stay(&self, call: &Call, key: Key, state: MutexGuard<'_, State>) -> Result<Vec<Arc<Vec<u8>>>> {
        let size = self.members.len();
        let state = self.wait(
            state,
            call,
            |state| state.meetings[&key].is_complete(),
            |state| {
                let arrived = &state.meetings[&key].arrived;
                (0..size).filter(|&r| arrived[r].is_none()).collect()
            },
        )?;
        let over = state.meetings[&key].over;
        let mut state = self.sleep_until(state, call, over)?;
        let meeting = state.meetings.get_mut(&key).expect("a meeting stays until its last member has left");
        let all = meeting.arrived.iter().flatten().map(|(_, brought)| brought.clone()).collect();
        meeting.departed += 1;
        if meeting.departed == size {
            state.meetings.remove(&key);
        }
        Ok(all)
    }

    /// Sleeps until a moment on the link; an error as soon as the run has failed.
    fn sleep_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        call: &Call,
        until: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>> {
        while let Some(left) = until.and_then(|until| until.checked_duration_since(Instant::now())) {
            if left.is_zero() {
                break;
            }
            self.stop_if_failed(&state, call)?;
            let wake = &self.job.wake[self.members[self.rank]];
            state = wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    /// Enters a call: notes it for error messages, and stops here if the run has failed.
    fn come(&self, call: &Call) -> Result<MutexGuard<'_, State>> {
        let mut state = self.job.lock();
        let rank = &mut state.ranks[self.members[self.rank]];
        rank.calls += 1;
        rank.last = Some(call.clone());
        self.stop_if_failed(&state, call)?;
        Ok(state)
    }

    fn stop_if_failed(&self, state: &State, call: &Call) -> Result<()> {
        match &state.failure {
            Some(cause) => {
                Err(CommError::Stopped { rank: self.members[self.rank], call: call.to_string(), cause: cause.clone() })
            }
            None => Ok(()),
        }
    }

    /// An error if one of the members that a call still needs has ended.
    fn stop_if_ended(&self, state: &mut State, call: &Call, missing: Vec<usize>) -> Result<()> {
        let mut missing = missing.into_iter().map(|r| self.members[r]);
        match missing.find(|&r| state.ranks[r].doing == Doing::Ended) {
            Some(gone) => {
                let what = format!("rank {gone} ended, and never entered {call}");
                Err(self.broken(state, &what, SAME_CALLS))
            }
            None => Ok(()),
        }
    }

    /// Sleeps until `ready`; an error as soon as that can no longer happen. `missing` names the members waited for.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        call: &Call,
        ready: impl Fn(&State) -> bool,
        missing: impl Fn(&State) -> Vec<usize>,
    ) -> Result<MutexGuard<'a, State>> {
        let me = self.members[self.rank];
        while !ready(&state) {
            self.stop_if_failed(&state, call)?;
            let awaited = missing(&state);
            self.stop_if_ended(&mut state, call, awaited)?;
            state.ranks[me].doing = Doing::Waiting;
            if !state.ranks.iter().any(|r| r.doing == Doing::Running) {
                let what = "deadlock: every rank waits for another one";
                return Err(self.broken(&mut state, what, DEADLOCK));
            }
            state = self.job.wake[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ranks[me].doing = Doing::Running;
        Ok(state)
    }

    /// Ends the run: records why, with a line for every rank, and wakes everyone.
    fn broken(&self, state: &mut State, what: &str, help: &str) -> CommError {
        state.ranks[self.members[self.rank]].doing = Doing::Waiting;
        let mut text = what.to_string();
        for (r, rank) in state.ranks.iter().enumerate() {
            let doing = match (rank.doing, &rank.last) {
                (Doing::Ended, None) => "ended without any communication call".to_string(),
                (Doing::Ended, Some(call)) => format!("ended after {call}, its call {}", rank.calls),
                (Doing::Waiting, Some(call)) => format!("waits in {call}, its call {}", rank.calls),
                (Doing::Running, Some(call)) => format!("computes, after {call}, its call {}", rank.calls),
                (_, None) => "has made no communication call yet".to_string(),
            };
            text += &format!("\n  rank {r}  {doing}");
        }
        text += &format!("\nhelp: {help}");
        state.failure = Some(text.clone());
        self.job.wake.iter().for_each(Condvar::notify_all);
        CommError::Broken(text)
    }

    /// The bytes of `part` when `len` elements are dealt out to the members as evenly as possible.
    fn part(&self, call: &Call, part: usize, len: usize) -> Range<usize> {
        let (elements, bytes) = (even_part(len, part, self.members.len()), call.dtype.size());
        elements.start * bytes..elements.end * bytes
    }

    /// Reduces one part of everyone's vector, in rank order.
    fn reduce_part(&self, call: &Call, all: &[Arc<Vec<u8>>], part: Range<usize>, out: &mut [u8]) {
        let parts: Vec<&[u8]> = all.iter().map(|bytes| &bytes[part.clone()]).collect();
        let op = call.op.expect("a reducing call names its reduction");
        reduce_in_rank_order(call.dtype, op, &parts, out);
    }
}

pub(super) const SAME_CALLS: &str = "every rank of a group must make the same calls in the same order; \
     did one return early, or is a call inside an `if rank == …`?";
pub(super) const DIFFERENT_CALLS: &str = "every rank of a group must make the same calls in the same order, \
     with the same length, type, reduction and root";
const DEADLOCK: &str =
    "look for a receive without a matching send, or collectives that ranks enter in different orders";

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn barrier(&self, call: &Call) -> Result<()> {
        self.meet(call, Vec::new()).map(drop)
    }

    fn send(&self, call: &Call, data: &[u8], to: usize) -> Result<()> {
        let mut state = self.come(call)?;
        let (from, to) = (self.members[self.rank], self.members[to]);
        let arrives = self.job.link.map(|link| {
            let now = Instant::now();
            let left = state.ranks[from].link_free.map_or(now, |free| free.max(now))
                + link::duration(link.transfer_seconds(data.len()));
            state.ranks[from].link_free = Some(left);
            left + link::duration(link.latency)
        });
        let message = Message { call: call.clone(), bytes: data.to_vec(), arrives };
        state.mail.entry((self.group, from, to)).or_default().push_back(message);
        // The receiver may be waiting for exactly this; it is no longer stuck.
        if state.ranks[to].doing == Doing::Waiting {
            state.ranks[to].doing = Doing::Running;
        }
        self.job.wake[to].notify_all();
        Ok(())
    }

    fn recv(&self, call: &Call, data: &mut [u8], from: usize) -> Result<()> {
        let state = self.come(call)?;
        let key = (self.group, self.members[from], self.members[self.rank]);
        let has_mail = |state: &State| state.mail.get(&key).is_some_and(|queue| !queue.is_empty());
        let mut state = self.wait(state, call, has_mail, |_| vec![from])?;
        let message = state.mail.get_mut(&key).and_then(VecDeque::pop_front);
        let Message { call: sent, bytes, arrives } = message.expect("wait returns when there is mail");
        if (sent.dtype, sent.len) != (call.dtype, call.len) {
            let what = format!("the message does not fit: {sent} on rank {} met {call}", self.members[from]);
            return Err(self.broken(&mut state, &what, "send and receive slices of the same length and type"));
        }
        drop(self.sleep_until(state, call, arrives)?);
        data.copy_from_slice(&bytes);
        Ok(())
    }

    /// Reduce-scatter, then all-gather: each rank adds up its part of the vector, so 2(n-1)/n of it travels.
    fn all_reduce(&self, call: &Call, data: &mut [u8]) -> Result<()> {
        if self.members.len() == 1 {
            return self.come(call).map(drop);
        }
        let mine = self.part(call, self.rank, call.len);
        let all = self.meet(call, data.to_vec())?;
        let mut sum = vec![0; mine.len()];
        self.reduce_part(call, &all, mine, &mut sum);
        drop(all);
        let (key, state) = self.arrive(call, sum, false)?;
        for (rank, sum) in self.stay(call, key, state)?.iter().enumerate() {
            data[self.part(call, rank, call.len)].copy_from_slice(sum);
        }
        Ok(())
    }

    fn start_all_reduce(self: Arc<Self>, call: &Call, data: Box<dyn Buffer>) -> Result<Box<dyn UnderWay>> {
        let (key, mut state) = self.arrive(call, Vec::new(), true)?;
        let meeting = state.meetings.get_mut(&key).expect("a meeting stays until its last member has left");
        let started = meeting.started.get_or_insert_with(|| {
            let reduction = Reduction::new(call, self.members.len());
            Arc::new(Started { reduction, over: OnceLock::new(), reduced: OnceLock::new() })
        });
        let started = started.clone();
        if let Some(over) = meeting.over {
            started.over.get_or_init(|| over);
        }
        if started.reduction.bring(self.rank, data) {
            state.meetings.remove(&key);
            if started.reduction.is_done() {
                started.reduced.get_or_init(Instant::now);
            }
        }
        drop(state);
        Ok(Box::new(Working { threads: self, call: call.clone(), started }))
    }

    fn reduce(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        let here = self.rank == root;
        let all = self.meet(call, data.to_vec())?;
        if here {
            self.reduce_part(call, &all, 0..data.len(), data);
        }
        Ok(())
    }

    fn broadcast(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        let here = self.rank == root;
        let all = self.meet(call, if here { data.to_vec() } else { Vec::new() })?;
        if !here {
            data.copy_from_slice(&all[root]);
        }
        Ok(())
    }

    fn all_gather(&self, call: &Call, mine: &[u8], all: &mut [u8]) -> Result<()> {
        for (rank, part) in self.meet(call, mine.to_vec())?.iter().enumerate() {
            all[self.part(call, rank, call.len * self.members.len())].copy_from_slice(part);
        }
        Ok(())
    }

    fn reduce_scatter(&self, call: &Call, all: &[u8], mine: &mut [u8]) -> Result<()> {
        let part = self.part(call, self.rank, call.len * self.members.len());
        let brought = self.meet(call, all.to_vec())?;
        self.reduce_part(call, &brought, part, mine);
        Ok(())
    }

    fn scatter(&self, call: &Call, all: &[u8], mine: &mut [u8], root: usize) -> Result<()> {
        let brought = self.meet(call, all.to_vec())?;
        mine.copy_from_slice(&brought[root][self.part(call, self.rank, call.len * self.members.len())]);
        Ok(())
    }

    fn gather(&self, call: &Call, mine: &[u8], all: &mut [u8], root: usize) -> Result<()> {
        let brought = self.meet(call, mine.to_vec())?;
        if self.rank == root {
            for (rank, part) in brought.iter().enumerate() {
                all[self.part(call, rank, call.len * self.members.len())].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn all_to_all(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()> {
        let len = call.len * self.members.len();
        let mine = self.part(call, self.rank, len);
        for (rank, sent) in self.meet(call, send.to_vec())?.iter().enumerate() {
            recv[self.part(call, rank, len)].copy_from_slice(&sent[mine.clone()]);
        }
        Ok(())
    }

    fn split(&self, call: &Call, color: u64, key: i64) -> Result<Arc<dyn Transport>> {
        let number = self.calls.load(Relaxed);
        let wish = [color, key as u64];
        let wishes: Vec<[u64; 2]> = self
            .meet(call, bytemuck::bytes_of(&wish).to_vec())?
            .iter()
            .map(|bytes| bytemuck::pod_read_unaligned(bytes))
            .collect();
        let mut chosen: Vec<usize> = (0..wishes.len()).filter(|&r| wishes[r][0] == color).collect();
        chosen.sort_by_key(|&r| (wishes[r][1] as i64, r));

        // The first of a color to come here gives its group a number; the world is group 0.
        let mut state = self.job.lock();
        let next = state.splits.len() as Group + 1;
        let group = *state.splits.entry((self.group, number, color)).or_insert(next);
        drop(state);

        let rank = chosen.iter().position(|&r| r == self.rank).expect("this rank chose its own color");
        Ok(Arc::new(Threads {
            job: self.job.clone(),
            group,
            members: chosen.iter().map(|&r| self.members[r]).collect(),
            rank,
            calls: AtomicU64::new(0),
            meter: self.meter.clone(),
        }))
    }
}

/// One rank's side of an all-reduce that goes on while it computes.
struct Working {
    threads: Arc<Threads>,
    call: Call,
    started: Arc<Started>,
}

impl Working {
    /// Does up to `most` blocks, and wakes those who wait for the last one.
    fn work(&self, most: usize) {
        if self.started.reduction.work(most) {
            self.started.reduced.get_or_init(Instant::now);
            // Those who wait have looked with the lock held.
            drop(self.threads.job.lock());
            self.threads.members.iter().for_each(|&member| self.threads.job.wake[member].notify_all());
        }
    }

    /// The members that have not started it.
    fn missing(&self) -> Vec<usize> {
        (0..self.threads.members.len()).filter(|&rank| !self.started.reduction.has(rank)).collect()
    }
}

impl UnderWay for Working {
    fn test(&mut self) -> Result<bool> {
        let Working { threads, call, started } = &*self;
        let mut state = threads.job.lock();
        threads.stop_if_failed(&state, call)?;
        threads.stop_if_ended(&mut state, call, self.missing())?;
        drop(state);
        if !started.reduction.is_ready() {
            return Ok(false);
        }
        self.work(self.started.reduction.share());
        let over = self.started.over.get().is_none_or(|&over| over <= Instant::now());
        Ok(over && self.started.reduction.is_done())
    }

    fn wait(&mut self) -> Result<Instant> {
        let Working { threads, call, started } = &*self;
        let me = threads.members[threads.rank];
        let mut state = threads.job.lock();
        threads.stop_if_failed(&state, call)?;
        state.ranks[me].last = Some(call.clone());
        drop(threads.wait(state, call, |_| started.reduction.is_ready(), |_| self.missing())?);
        self.work(usize::MAX);
        let mut state = threads.job.lock();
        // Whoever has taken a block does not stop before it is done.
        while !started.reduction.is_done() {
            state = threads.job.wake[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let over = started.over.get().copied();
        drop(threads.sleep_until(state, call, over)?);
        let reduced = *started.reduced.get_or_init(Instant::now);
        Ok(over.map_or(reduced, |over| over.max(reduced)))
    }

    fn take(self: Box<Self>) -> Box<dyn Any> {
        self.started.reduction.take(self.threads.rank).into_any()
    }
}
