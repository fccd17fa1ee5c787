//! The state that all rank threads of one run share, and how they wait for each other.
//!
//! All ranks share one lock, which guards what every rank is doing. So a wait that can never end is
//! an error at once, not a hang: a rank has ended, two ranks came with different calls, or all
//! ranks wait. Work on data needs no lock.

use super::lateness::{self, Lateness};
use super::meetings::{GroupId, Lane, Mail, Meetings};
use super::message::Message;
use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use super::sync::{Condvar, Mutex, MutexGuard, has_clock, may_spin, thread};
use crate::comm::call::Call;
use crate::comm::meter::lock;
use crate::comm::recorder::{self, RecordedCall, Recorder};
use crate::comm::{CommError, Options, RankState, Report, Result, Unreceived};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a rank spins before it goes to sleep: about what waking up costs.
const PATIENCE: Duration = Duration::from_micros(50);

/// How often a spinning rank checks before it yields its core: one or two microseconds.
const SPINS: usize = 32;

/// The state that all rank threads of one run share.
pub(crate) struct ThreadWorld {
    state: Mutex<WorldState>,
    /// One per rank.
    wakers: Box<[Waker]>,
    /// Wakes the thread that waits for the end of all ranks.
    over: Condvar,
    pub(super) options: Options,
    /// Whether a waiting rank may spin, because every rank has a core.
    may_spin: bool,
    /// The last calls of each rank.
    pub(super) recorders: Box<[Arc<Recorder>]>,
    /// Memory of received messages, for the next ones.
    spare: std::sync::Mutex<Vec<Message>>,
}

/// Wakes a rank. Each has its own cache lines, so that spinning ranks do not slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Waker {
    wake: Condvar,
    /// Sleeping threads of the rank: one or none.
    asleep: AtomicUsize,
    /// Messages sent to the rank so far.
    messages: AtomicU64,
}

#[derive(Default)]
pub(super) struct WorldState {
    pub ranks: Vec<Rank>,
    /// How many ranks wait, and how many have ended.
    waiting: usize,
    ended: usize,
    /// Why the run has failed.
    failure: Option<CommError>,
    pub meetings: Meetings,
    /// Messages in flight.
    pub mail: HashMap<Lane, VecDeque<Mail>>,
    /// The groups that splits have made, by group, number of the split there, and first member.
    pub splits: HashMap<(GroupId, u64, Option<usize>), GroupId>,
    /// When each group's link is free again.
    pub link_free: HashMap<GroupId, Instant>,
}

/// The state of one rank. Each rank has its own cache lines, like [`Waker`].
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Rank {
    doing: Doing,
    /// The last notice that the rank is late.
    notice: Option<Lateness>,
    /// When the rank's simulated link is free again, to send and to receive.
    pub free_out: Option<Instant>,
    pub free_in: Option<Instant>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Doing {
    #[default]
    Running,
    Waiting,
    Ended,
}

impl ThreadWorld {
    pub fn new(size: usize, options: &Options) -> Arc<ThreadWorld> {
        let state = WorldState {
            ranks: (0..size).map(|_| Rank::default()).collect(),
            ..WorldState::default()
        };
        Arc::new(ThreadWorld {
            state: Mutex::new(state),
            wakers: (0..size).map(|_| Waker::default()).collect(),
            over: Condvar::new(),
            options: options.clone(),
            // A rank that waits for a slow link sleeps.
            may_spin: !options.has_link() && may_spin(size),
            recorders: (0..size).map(|_| Arc::new(Recorder::new())).collect(),
            spare: std::sync::Mutex::default(),
        })
    }

    pub fn size(&self) -> usize {
        self.wakers.len()
    }

    /// Notes that a rank's closure has returned, with its error. Returns whether this error ended
    /// the run, rather than being a consequence of an earlier one.
    pub fn ended(&self, rank: usize, error: Option<CommError>) -> bool {
        let mut state = self.lock();
        state.set(rank, Doing::Ended);
        let first = error.is_some() && state.failure.is_none();
        if first {
            state.failure = error;
        }
        drop(state);
        self.wake_all();
        first
    }

    /// Wakes all ranks, and the thread that waits for their end.
    fn wake_all(&self) {
        self.over.notify_all();
        for rank in 0..self.size() {
            self.wake(rank);
        }
    }

    /// Waits until all ranks have ended. Returns false if the run failed longer ago than the
    /// deadline, at least 5 s, and a rank has not ended.
    pub fn wait_for_end(&self) -> bool {
        let mut state = self.lock();
        let mut failed = None;
        while has_clock() && state.ended < state.ranks.len() {
            let mut left = self.options.deadline.max(Duration::from_secs(5));
            if state.failure.is_some() {
                left = left.saturating_sub(failed.get_or_insert_with(Instant::now).elapsed());
            }
            if left.is_zero() {
                return false;
            }
            state = self.over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Why the run failed. When all ranks have ended, a message that no rank received is a reason
    /// too: its receiver has worked without it.
    pub fn failure(&self) -> Option<CommError> {
        let state = self.lock();
        if state.failure.is_some() {
            return state.failure.clone();
        }
        let messages = state.unreceived();
        (!messages.is_empty()).then_some(CommError::NotReceived { messages })
    }

    /// Locks the state. After a panic of the rank that had the lock, the run is failing anyway.
    pub(super) fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `rank` enters a call, unless the run has failed.
    pub(super) fn enter(&self, rank: usize, call: &Call) -> Result<MutexGuard<'_, WorldState>> {
        let mut state = self.lock();
        state.stop_if_failed(rank, call)?;
        if state.ranks[rank].notice.take().is_some() {
            lateness::say_it_came(rank, call, self.recorders[rank].computed());
        }
        Ok(state)
    }

    /// `rank` waits until `ready`. Returns an error as soon as that can no longer happen. `missing`
    /// lists the ranks that it waits for.
    pub(super) fn wait<'a>(
        &'a self,
        rank: usize,
        mut state: MutexGuard<'a, WorldState>,
        call: &Call,
        ready: impl Fn(&WorldState) -> bool,
        missing: impl Fn(&WorldState) -> Vec<usize>,
    ) -> Result<MutexGuard<'a, WorldState>> {
        while !ready(&state) {
            state.stop_if_failed(rank, call)?;
            self.stop_if_ended(rank, &mut state, call, &missing)?;
            state.set(rank, Doing::Waiting);
            if state.waiting + state.ended == state.ranks.len() {
                return Err(self
                    .broken(rank, &mut state, |report| CommError::Deadlock { all: true, report }));
            }
            let most = self.watch(rank, &mut state, call, &missing)?;
            state = self.sleep(rank, state, most);
        }
        state.set(rank, Doing::Running);
        Ok(state)
    }

    /// Prints which ranks are late when it is time to, and returns an error at the deadline. Else
    /// returns when to check again.
    fn watch(
        &self,
        rank: usize,
        state: &mut WorldState,
        call: &Call,
        missing: impl Fn(&WorldState) -> Vec<usize>,
    ) -> Result<Option<Duration>> {
        if !has_clock() {
            return Ok(None);
        }
        let waited = self.recorders[rank]
            .last()
            .map_or(Duration::ZERO, |entry| entry.start.elapsed());
        if waited < self.options.notice() {
            return Ok(Some(self.options.notice() - waited));
        }
        let missing = missing(state);
        if waited >= self.options.deadline {
            let call = Box::new(call.info(self.recorders[rank].current()));
            return Err(self.broken(rank, state, |report| CommError::DeadlinePassed {
                missing,
                call,
                waited,
                report,
            }));
        }
        let mut again = self.options.deadline - waited;
        for late in missing {
            let before = state.ranks[late].notice;
            if state.ranks[late].doing != Doing::Running {
                continue;
            }
            let (notice, rest) = lateness::due(&self.options, self.recorders[late].computed());
            again = again.min(rest);
            if before != Some(notice) {
                let doing = state.ranks[late].describe(self.recorders[late].last());
                lateness::say(notice, late, rank, call, waited, &doing);
                state.ranks[late].notice = Some(notice);
            }
        }
        Ok(Some(again))
    }

    /// Returns an error if a rank that the call still needs has ended.
    pub(super) fn stop_if_ended(
        &self,
        rank: usize,
        state: &mut WorldState,
        call: &Call,
        missing: impl Fn(&WorldState) -> Vec<usize>,
    ) -> Result<()> {
        if state.ended == 0 {
            return Ok(());
        }
        let gone = missing(state).into_iter().find(|&r| state.ranks[r].doing == Doing::Ended);
        let Some(gone) = gone else {
            return Ok(());
        };
        let call = Box::new(call.info(self.recorders[rank].current()));
        Err(self.broken(rank, state, |report| CommError::RankEnded { rank: gone, call, report }))
    }

    /// Sleeps until a moment on the simulated link. Returns an error as soon as the run has failed.
    pub(super) fn sleep_until<'a>(
        &'a self,
        rank: usize,
        mut state: MutexGuard<'a, WorldState>,
        call: &Call,
        until: Option<Instant>,
    ) -> Result<()> {
        let left = || {
            until
                .map(|until| until.saturating_duration_since(Instant::now()))
                .filter(|left| !left.is_zero())
        };
        while let Some(left) = left() {
            state.stop_if_failed(rank, call)?;
            state = self.sleep(rank, state, Some(left));
        }
        Ok(())
    }

    /// Sleeps until the rank is woken, or `most` has passed. May also return earlier.
    pub(super) fn sleep<'a>(
        &'a self,
        rank: usize,
        state: MutexGuard<'a, WorldState>,
        most: Option<Duration>,
    ) -> MutexGuard<'a, WorldState> {
        let Waker { wake, asleep, .. } = &self.wakers[rank];
        asleep.fetch_add(1, Relaxed);
        let state = match most {
            Some(most) => wake.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
            None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        asleep.fetch_sub(1, Relaxed);
        state
    }

    /// Spins for a short time, where every rank has a core.
    pub(super) fn spin(&self, until: impl Fn() -> bool) {
        if !self.may_spin || until() {
            return;
        }
        let start = Instant::now();
        loop {
            for _ in 0..SPINS {
                if until() {
                    return;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > PATIENCE {
                return;
            }
            // The other rank may be on the same core.
            thread::yield_now();
        }
    }

    /// Wakes `rank`, which then checks whether its wait is over. The caller held the lock when it
    /// wrote the change, and may have released it since. So a rank that was about to sleep has seen
    /// the change, or sleeps already and wakes up.
    pub(super) fn wake(&self, rank: usize) {
        let Waker { wake, asleep, .. } = &self.wakers[rank];
        if asleep.load(Relaxed) > 0 {
            wake.notify_all();
        }
    }

    /// Wakes `rank` for a message.
    pub(super) fn wake_for_mail(&self, rank: usize) {
        self.wakers[rank].messages.fetch_add(1, Release);
        self.wake(rank);
    }

    /// Releases the lock until a message comes, for at most as long as [`ThreadWorld::spin`] spins.
    pub(super) fn spin_for_mail<'a>(
        &'a self,
        rank: usize,
        state: MutexGuard<'a, WorldState>,
    ) -> MutexGuard<'a, WorldState> {
        if !self.may_spin {
            return state;
        }
        let messages = &self.wakers[rank].messages;
        let seen = messages.load(Relaxed);
        drop(state);
        self.spin(|| messages.load(Acquire) != seen);
        self.lock()
    }

    /// Ends the run: records why, with what every rank is doing, and wakes all ranks.
    pub(super) fn broken(
        &self,
        rank: usize,
        state: &mut WorldState,
        error: impl FnOnce(Box<Report>) -> CommError,
    ) -> CommError {
        state.set(rank, Doing::Waiting);
        let describe =
            |(number, rank): (usize, &Rank)| (number, rank.describe(self.recorders[number].last()));
        let ranks = state.ranks.iter().enumerate().map(describe).collect();
        let save = |path: &PathBuf| recorder::save(path, self.recorders.iter().enumerate());
        let flight_file = self.options.flight_file.as_ref().map(save);
        let error = error(Box::new(Report { ranks, flight_file }));
        state.failure = Some(error.clone());
        self.wake_all();
        error
    }

    /// A copy of a message, in the memory of an earlier message if possible.
    pub(super) fn copy(&self, data: &[u8]) -> Message {
        let mut spare = lock(&self.spare);
        let fits = |one: &Message| one.capacity() >= data.len() && one.capacity() / 2 <= data.len();
        let found = spare.iter().position(fits).map(|i| spare.swap_remove(i));
        drop(spare);
        let mut copy = found.unwrap_or_else(|| Message::with_capacity(data.len()));
        copy.fill(data);
        copy
    }

    /// Keeps a message's memory for the next message. At most two per rank are kept, so that memory
    /// does not grow.
    pub(super) fn recycle(&self, message: Message) {
        let mut spare = lock(&self.spare);
        spare.push(message);
        if spare.len() > 2 * self.size() {
            spare.swap_remove(0);
        }
    }
}

impl WorldState {
    fn set(&mut self, rank: usize, doing: Doing) {
        let before = std::mem::replace(&mut self.ranks[rank].doing, doing);
        for (doing, change) in [(before, -1), (doing, 1)] {
            let count = match doing {
                Doing::Running => continue,
                Doing::Waiting => &mut self.waiting,
                Doing::Ended => &mut self.ended,
            };
            *count = count.saturating_add_signed(change);
        }
    }

    /// Marks these ranks as running: what they may be waiting for has happened, and they will
    /// check.
    pub fn mark_running(&mut self, ranks: &[usize]) {
        // Mostly no rank waits, and this saves fetching what other cores write.
        if self.waiting == 0 {
            return;
        }
        for &rank in ranks {
            if self.ranks[rank].doing == Doing::Waiting {
                self.set(rank, Doing::Running);
            }
        }
    }

    /// The message that the next receive on a lane returns.
    pub fn first_mail(&self, lane: &Lane) -> Option<&Mail> {
        self.mail.get(lane).and_then(VecDeque::front)
    }

    /// Messages that no rank has received, by group, sender and receiver.
    fn unreceived(&self) -> Vec<Unreceived> {
        let mut left: Vec<_> = self.mail.iter().collect();
        left.sort_by_key(|(lane, _)| **lane);
        let unreceived = |(&(_, from, to, _), queue): (&Lane, &VecDeque<Mail>)| {
            Some(Unreceived {
                from,
                to,
                count: queue.len() as u64,
                latest: queue.back()?.call.info(None),
            })
        };
        left.into_iter().filter_map(unreceived).collect()
    }

    pub fn stop_if_failed(&self, rank: usize, call: &Call) -> Result<()> {
        match &self.failure {
            Some(cause) => Err(CommError::Stopped {
                rank,
                call: Box::new(call.info(None)),
                cause: Box::new(cause.clone()),
            }),
            None => Ok(()),
        }
    }
}

impl Rank {
    /// What the rank is doing, for an error. `last` is its latest call.
    fn describe(&self, last: Option<RecordedCall>) -> RankState {
        let Some(last) = last else {
            return if self.doing == Doing::Ended {
                RankState::EndedWithoutCall
            } else {
                RankState::NoCallYet
            };
        };
        let call = last.call.info(Some(last.number));
        match (self.doing, last.end) {
            (Doing::Ended, _) => RankState::Ended { after: Some(call) },
            (Doing::Running, Some((end, _))) => {
                RankState::Computes { after: call, time: end.elapsed() }
            }
            (Doing::Running, None) => RankState::InCall { call },
            (Doing::Waiting, _) => RankState::Waits { call, time: last.start.elapsed() },
        }
    }
}
