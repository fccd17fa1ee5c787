//! The state that all rank threads of one run share, and how they wait for each other.
//!
//! All ranks share one lock, which guards what every rank is doing. So a wait that can never end is an error at once, not a hang:
//! a rank has ended, two ranks came with different calls, or all ranks wait. Work on data needs no lock.

use super::lateness::{self, Told, lasting};
use super::message::Message;
use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use super::sync::{Condvar, Mutex, MutexGuard, has_clock, may_spin, thread};
use super::threads::{GroupId, Lane, Mail, Meetings};
use crate::comm::call::Call;
use crate::comm::meter::lock;
use crate::comm::recorder::{self, Entry, Recorder};
use crate::comm::{CommError, Options, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a rank spins before it goes to sleep: about what waking up costs.
const PATIENCE: Duration = Duration::from_micros(50);

/// How often a spinning rank checks before it yields its core: one or two microseconds.
const SPINS: usize = 32;

/// The state that all rank threads of one run share.
pub(crate) struct Run {
    state: Mutex<State>,
    /// One per rank.
    bells: Box<[Bell]>,
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

/// Wakes a rank. Each bell has its own cache lines, so that spinning ranks do not slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Bell {
    wake: Condvar,
    /// Sleeping threads of the rank: one or none.
    asleep: AtomicUsize,
    /// Messages sent to the rank so far.
    messages: AtomicU64,
}

#[derive(Default)]
pub(super) struct State {
    pub ranks: Vec<Rank>,
    /// How many ranks wait, and how many have ended.
    waiting: usize,
    ended: usize,
    /// Why the run has failed.
    failure: Option<String>,
    pub meetings: Meetings,
    /// Messages in flight.
    pub mail: HashMap<Lane, VecDeque<Mail>>,
    /// The groups that splits have made, by group, number of the split there, and first member.
    pub splits: HashMap<(GroupId, u64, Option<usize>), GroupId>,
    /// When each group's link is free again.
    pub link_free: HashMap<GroupId, Instant>,
}

/// The state of one rank. Each rank has its own cache lines, like [`Bell`].
#[repr(align(128))]
pub(super) struct Rank {
    doing: Doing,
    /// The last notice that the rank is late.
    told: Told,
    /// When the rank's simulated link is free again, to send and to receive.
    pub free_out: Option<Instant>,
    pub free_in: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Running,
    Waiting,
    Ended,
}

pub(super) const SAME_CALLS: &str = "every rank of a group must make the same calls in the same order; \
     did one return early, or is a call inside an `if rank == …`?";
const DIFFERENT_CALLS: &str = "every rank of a group must make the same calls in the same order, \
     with the same length, type, reduction and root";
const DIFFERENT_PLACES: &str = "calls that differ in nothing else are compared by their place in the source: has a rank \
     skipped one, or changed their order? If these are to meet, give both a label: comm.labelled(\"…\")";

/// The help for ranks in different calls. `alike`: the calls differ in nothing but their place in the source.
pub(super) fn different(alike: bool) -> &'static str {
    if alike {
        DIFFERENT_PLACES
    } else {
        DIFFERENT_CALLS
    }
}
pub(super) const FITTING: &str = "send and receive slices of the same length and type; two streams of messages between the same \
     ranks need a tag each: comm.tagged(…)";
pub(super) const DEADLOCK: &str = "look for a receive without a matching send, or collectives that ranks enter in different orders";

/// The error about messages that no rank received by the end of a run. Each entry has sender, receiver, number of messages, and
/// the latest send.
pub(super) fn unreceived(
    messages: &[(usize, usize, u64, impl std::fmt::Display)],
) -> Option<String> {
    let mut text = String::from("the run is over, and messages were not received");
    for (from, to, count, latest) in messages {
        let messages = if *count == 1 {
            "a message".to_string()
        } else {
            format!("{count} messages")
        };
        text += &format!(
            "\n  rank {from}  sent {messages} that rank {to} did not receive; the latest: {latest}"
        );
    }
    text += "\nhelp: every send needs a receive on the other rank, with the same tag, in the same group";
    (!messages.is_empty()).then_some(text)
}

impl Run {
    pub fn new(size: usize, options: &Options) -> Arc<Run> {
        let rank = |_| Rank {
            doing: Doing::Running,
            told: Told::Nothing,
            free_out: None,
            free_in: None,
        };
        let state = State {
            ranks: (0..size).map(rank).collect(),
            ..State::default()
        };
        Arc::new(Run {
            state: Mutex::new(state),
            bells: (0..size).map(|_| Bell::default()).collect(),
            over: Condvar::new(),
            options: options.clone(),
            // A rank that waits for a slow link sleeps.
            may_spin: options.link.is_none() && may_spin(size),
            recorders: (0..size).map(|_| Arc::new(Recorder::new())).collect(),
            spare: std::sync::Mutex::default(),
        })
    }

    pub fn size(&self) -> usize {
        self.bells.len()
    }

    /// Notes that a rank's closure has returned, with its error. Returns whether this error ended the run, rather than being a
    /// consequence of an earlier one.
    pub fn ended(&self, rank: usize, error: Option<String>) -> bool {
        let mut state = self.lock();
        state.now(rank, Doing::Ended);
        let first = error.is_some() && state.failure.is_none();
        if let Some(error) = error {
            state
                .failure
                .get_or_insert(format!("rank {rank} failed: {error}"));
        }
        drop(state);
        (0..self.size()).for_each(|rank| self.ring(rank));
        self.over.notify_all();
        first
    }

    /// Waits until all ranks have ended. Returns false if the run failed longer ago than the deadline, at least 5 s, and a
    /// rank has not ended.
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
            state = self
                .over
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// Why the run failed. When all ranks have ended, a message that no rank received is a reason too: its receiver has worked
    /// without it.
    pub fn failure(&self) -> Option<String> {
        let state = self.lock();
        state
            .failure
            .clone()
            .or_else(|| unreceived(&state.unreceived()))
    }

    /// Locks the state. After a panic of the rank that had the lock, the run is failing anyway.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `rank` enters a call, unless the run has failed.
    pub(super) fn enter(&self, rank: usize, call: &Call) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.stop_if_failed(rank, call)?;
        if std::mem::take(&mut state.ranks[rank].told) != Told::Nothing {
            lateness::say_it_came(rank, call, self.recorders[rank].computed());
        }
        Ok(state)
    }

    /// `rank` waits until `ready`. Returns an error as soon as that can no longer happen. `missing` lists the ranks that it waits for.
    pub(super) fn wait<'a>(
        &'a self,
        rank: usize,
        mut state: MutexGuard<'a, State>,
        call: &Call,
        ready: impl Fn(&State) -> bool,
        missing: impl Fn(&State) -> Vec<usize>,
    ) -> Result<MutexGuard<'a, State>> {
        while !ready(&state) {
            state.stop_if_failed(rank, call)?;
            self.stop_if_ended(rank, &mut state, call, &missing)?;
            state.now(rank, Doing::Waiting);
            if state.waiting + state.ended == state.ranks.len() {
                return Err(self.broken(
                    rank,
                    &mut state,
                    "deadlock: all ranks wait for each other",
                    DEADLOCK,
                ));
            }
            let most = self.watch(rank, &mut state, call, &missing)?;
            state = self.sleep(rank, state, most);
        }
        state.now(rank, Doing::Running);
        Ok(state)
    }

    /// Prints which ranks are late when it is time to, and returns an error at the deadline. Else returns when to check again.
    fn watch(
        &self,
        rank: usize,
        state: &mut State,
        call: &Call,
        missing: impl Fn(&State) -> Vec<usize>,
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
            let what = lateness::too_late(&missing, call, waited);
            return Err(self.broken(rank, state, &what, lateness::TOO_LATE));
        }
        let mut again = self.options.deadline - waited;
        for late in missing {
            let before = state.ranks[late].told;
            if state.ranks[late].doing != Doing::Running {
                continue;
            }
            let (told, rest) = lateness::due(&self.options, self.recorders[late].computed());
            again = again.min(rest);
            if told != before {
                let doing = state.ranks[late].in_words(self.recorders[late].last());
                lateness::say(told, late, rank, call, waited, &doing);
                state.ranks[late].told = told;
            }
        }
        Ok(Some(again))
    }

    /// Returns an error if a rank that the call still needs has ended.
    pub(super) fn stop_if_ended(
        &self,
        rank: usize,
        state: &mut State,
        call: &Call,
        missing: impl Fn(&State) -> Vec<usize>,
    ) -> Result<()> {
        if state.ended == 0 {
            return Ok(());
        }
        let gone = missing(state)
            .into_iter()
            .find(|&r| state.ranks[r].doing == Doing::Ended);
        gone.map_or(Ok(()), |gone| {
            let what = format!("rank {gone} ended, and never entered {call}");
            Err(self.broken(rank, state, &what, SAME_CALLS))
        })
    }

    /// Sleeps until a moment on the simulated link. Returns an error as soon as the run has failed.
    pub(super) fn sleep_until<'a>(
        &'a self,
        rank: usize,
        mut state: MutexGuard<'a, State>,
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

    /// Sleeps until the rank's bell rings, or `most` has passed. May also return earlier.
    pub(super) fn sleep<'a>(
        &'a self,
        rank: usize,
        state: MutexGuard<'a, State>,
        most: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let Bell { wake, asleep, .. } = &self.bells[rank];
        asleep.fetch_add(1, Relaxed);
        let state = match most {
            Some(most) => {
                wake.wait_timeout(state, most)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
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

    /// Wakes `rank`, which then checks whether its wait is over. The caller held the lock when it wrote the change, and may have
    /// released it since. So a rank that was about to sleep has seen the change, or sleeps already and hears the bell.
    pub(super) fn ring(&self, rank: usize) {
        let Bell { wake, asleep, .. } = &self.bells[rank];
        if asleep.load(Relaxed) > 0 {
            wake.notify_all();
        }
    }

    /// Wakes `rank` for a message.
    pub(super) fn ring_for_mail(&self, rank: usize) {
        self.bells[rank].messages.fetch_add(1, Release);
        self.ring(rank);
    }

    /// Releases the lock until a message comes, for at most as long as [`Run::spin`] spins.
    pub(super) fn spin_for_mail<'a>(
        &'a self,
        rank: usize,
        state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        if !self.may_spin {
            return state;
        }
        let messages = &self.bells[rank].messages;
        let seen = messages.load(Relaxed);
        drop(state);
        self.spin(|| messages.load(Acquire) != seen);
        self.lock()
    }

    /// Ends the run: records why, with a line for every rank, and wakes all ranks.
    pub(super) fn broken(
        &self,
        rank: usize,
        state: &mut State,
        what: &str,
        help: &str,
    ) -> CommError {
        state.now(rank, Doing::Waiting);
        let mut text = what.to_string();
        for (r, rank) in state.ranks.iter().enumerate() {
            text += &format!("\n  rank {r}  {}", rank.in_words(self.recorders[r].last()));
        }
        text += &format!("\nhelp: {help}");
        if let Some(file) = &self.options.flight_file {
            let saved = recorder::save(file, self.recorders.iter().enumerate());
            text += &recorder::in_words(saved, file);
        }
        state.failure = Some(text.clone());
        self.over.notify_all();
        (0..self.size()).for_each(|rank| self.ring(rank));
        CommError::Broken(text)
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

    /// Keeps a message's memory for the next message. At most two per rank are kept, so that memory does not grow.
    pub(super) fn recycle(&self, message: Message) {
        let mut spare = lock(&self.spare);
        spare.push(message);
        if spare.len() > 2 * self.size() {
            spare.swap_remove(0);
        }
    }
}

impl State {
    fn now(&mut self, rank: usize, doing: Doing) {
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

    /// Marks these ranks as running: what they may be waiting for has happened, and they will check.
    pub fn may_go_on(&mut self, ranks: &[usize]) {
        // Mostly no rank waits, and this saves fetching what other cores write.
        if self.waiting == 0 {
            return;
        }
        for &rank in ranks {
            if self.ranks[rank].doing == Doing::Waiting {
                self.now(rank, Doing::Running);
            }
        }
    }

    /// The message that the next receive on a lane returns.
    pub fn first_mail(&self, lane: &Lane) -> Option<&Mail> {
        self.mail.get(lane).and_then(VecDeque::front)
    }

    /// Messages that no rank has received: sender, receiver, number of messages, and the latest send.
    fn unreceived(&self) -> Vec<(usize, usize, u64, Call)> {
        let left = |(lane, queue): (&Lane, &VecDeque<Mail>)| {
            queue
                .back()
                .map(|latest| (*lane, queue.len() as u64, latest.call))
        };
        let mut left: Vec<_> = self.mail.iter().filter_map(left).collect();
        left.sort_by_key(|(lane, ..)| *lane);
        left.into_iter()
            .map(|((_, from, to, _), count, latest)| (from, to, count, latest))
            .collect()
    }

    pub fn stop_if_failed(&self, rank: usize, call: &Call) -> Result<()> {
        match &self.failure {
            Some(cause) => Err(CommError::Stopped {
                rank,
                call: call.to_string(),
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }
}

impl Rank {
    fn in_words(&self, last: Option<Entry>) -> String {
        let Some(last) = last else {
            let ended = "ended without any communication call";
            return if self.doing == Doing::Ended {
                ended
            } else {
                "has made no communication call yet"
            }
            .to_string();
        };
        let call = format!("{}, its call {}", last.call, last.number);
        match (self.doing, last.end) {
            (Doing::Ended, _) => format!("ended after {call}"),
            (Doing::Running, Some((end, _))) => format!("computes{}, after {call}", lasting(end)),
            (Doing::Running, None) => format!("is in {call}"),
            (Doing::Waiting, _) => format!("waits in {call}{}", lasting(last.start)),
        }
    }
}
