//! What all rank threads of one run share, and how they wait for each other.
//!
//! All ranks share one lock, under which it is always known what every rank is doing; so a wait that can never end is an
//! error at once, not a hang: because a rank has ended, because two ranks came with different calls, or because all ranks
//! wait. Work on data goes on without the lock.

use super::lateness::{self, Late, Told, lasting};
use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use super::sync::{Condvar, Mutex, MutexGuard, has_clock, may_spin, thread};
use super::threads::{GroupId, Lane, Meetings, Message};
use crate::comm::call::Call;
use crate::comm::link::Link;
use crate::comm::recorder::{self, Entry, Recorder};
use crate::comm::{CommError, Options, Result};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a rank looks again and again whether its wait is over, before it goes to sleep: what waking up costs, at most.
const PATIENCE: Duration = Duration::from_micros(50);

/// How often it looks before it lets others have its core: one or two microseconds.
const SPINS: usize = 32;

/// What all rank threads of one run share.
pub(crate) struct Run {
    state: Mutex<State>,
    /// One for each rank.
    bells: Box<[Bell]>,
    /// Wakes who waits for the end of all ranks.
    over: Condvar,
    /// What communication takes, if not only what it really takes.
    pub(super) link: Option<Link>,
    /// Whether a waiting rank takes no other rank's core.
    may_spin: bool,
    /// How long one may be waited for.
    pub(super) late: Late,
    /// The last calls of each rank.
    pub(super) recorders: Box<[Recorder]>,
    /// Where these are written if the run breaks.
    flight_file: Option<PathBuf>,
    /// Memory of messages that have been received, for the next ones.
    spare: Mutex<Vec<Vec<u8>>>,
}

/// What wakes a rank. In memory of its own, so that spinning ranks do not slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Bell {
    wake: Condvar,
    /// Threads of the rank that sleep: one, or none.
    asleep: AtomicUsize,
    /// Messages that were ever sent to it.
    messages: AtomicU64,
}

#[derive(Default)]
pub(super) struct State {
    pub ranks: Vec<Rank>,
    /// Ranks that wait, and ranks that have ended.
    waiting: usize,
    ended: usize,
    /// Why the run cannot go on, once it cannot.
    failure: Option<String>,
    pub meetings: Meetings,
    /// Messages that are sent and not yet received.
    pub mail: HashMap<Lane, VecDeque<Message>>,
    /// The groups that splits have made: by group, number of the split there, and color.
    pub splits: HashMap<(GroupId, u64, u64), GroupId>,
    /// When each group's last collective has left its link.
    pub link_free: HashMap<GroupId, Instant>,
}

/// What is known of a rank; in memory of its own, as [`Bell`].
#[repr(align(128))]
pub(super) struct Rank {
    doing: Doing,
    /// What has been said about its being late.
    told: Told,
    /// When the last message that it sends has left its link, and when the last one that is sent to it has come in.
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

/// What to do about ranks that meet in different calls, which may be alike in all but their place.
pub(super) fn different(alike: bool) -> &'static str {
    if alike { DIFFERENT_PLACES } else { DIFFERENT_CALLS }
}
pub(super) const FITTING: &str = "send and receive slices of the same length and type; two streams of messages between the same \
     ranks need a tag each: comm.tagged(…)";
pub(super) const DEADLOCK: &str =
    "look for a receive without a matching send, or collectives that ranks enter in different orders";

/// The error of messages that were not received by the end of a run: sender, receiver, how many, and the latest send.
pub(super) fn unreceived(messages: &[(usize, usize, u64, impl std::fmt::Display)]) -> Option<String> {
    let mut text = String::from("the run is over, and messages were not received");
    for (from, to, count, latest) in messages {
        let messages = if *count == 1 { "a message".to_string() } else { format!("{count} messages") };
        text += &format!("\n  rank {from}  sent {messages} that rank {to} did not receive; the latest: {latest}");
    }
    text += "\nhelp: every send needs a receive on the other rank, with the same tag, in the same group";
    (!messages.is_empty()).then_some(text)
}

impl Run {
    pub fn new(size: usize, options: &Options) -> Arc<Run> {
        let rank = |_| Rank { doing: Doing::Running, told: Told::Nothing, free_out: None, free_in: None };
        let state = State { ranks: (0..size).map(rank).collect(), ..State::default() };
        Arc::new(Run {
            state: Mutex::new(state),
            bells: (0..size).map(|_| Bell::default()).collect(),
            over: Condvar::new(),
            link: options.link,
            // Whoever waits for a slow link sleeps.
            may_spin: options.link.is_none() && may_spin(size),
            late: Late::new(options),
            recorders: (0..size).map(|_| Recorder::new()).collect(),
            flight_file: options.flight_file.clone(),
            spare: Mutex::new(Vec::new()),
        })
    }

    pub fn size(&self) -> usize {
        self.bells.len()
    }

    /// To be called when a rank's closure is over; `error` is why it failed, if it did.
    /// Returns whether that error is what ended the run, rather than a consequence of an earlier one.
    pub fn ended(&self, rank: usize, error: Option<String>) -> bool {
        let mut state = self.lock();
        state.now(rank, Doing::Ended);
        let first = error.is_some() && state.failure.is_none();
        if let Some(error) = error {
            state.failure.get_or_insert(format!("rank {rank} failed: {error}"));
        }
        drop(state);
        (0..self.size()).for_each(|rank| self.ring(rank));
        self.over.notify_all();
        first
    }

    /// Waits until all ranks have ended. False if one has not, although the run failed as long ago as one may be late, or 5 s.
    pub fn wait_for_end(&self) -> bool {
        let mut state = self.lock();
        let mut failed = None;
        while has_clock() && state.ended < state.ranks.len() {
            let mut left = self.late.deadline.max(Duration::from_secs(5));
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

    /// Why the run broke, if it did. When all ranks have ended, a message that is still there is a reason, too: the rank that it
    /// was for has worked without it.
    pub fn failure(&self) -> Option<String> {
        let state = self.lock();
        state.failure.clone().or_else(|| unreceived(&state.unreceived()))
    }

    /// A panic while the lock is held leaves no half-made change behind that matters: the run is failing anyway.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `rank` enters a call; it stops here if the run has failed.
    pub(super) fn enter(&self, rank: usize, call: &Call) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.stop_if_failed(rank, call)?;
        if std::mem::take(&mut state.ranks[rank].told) != Told::Nothing {
            lateness::say_it_came(rank, call, self.recorders[rank].computed());
        }
        Ok(state)
    }

    /// `rank` waits until `ready`; an error as soon as that can no longer happen. `missing` names the ranks waited for.
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
                return Err(self.broken(rank, &mut state, "deadlock: every rank waits for another one", DEADLOCK));
            }
            let most = self.watch(rank, &mut state, call, &missing)?;
            state = self.sleep(rank, state, most);
        }
        state.now(rank, Doing::Running);
        Ok(state)
    }

    /// Says who is late, at the time to say so; an error once that has lasted too long. Returns when to look again.
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
        let waited = self.recorders[rank].in_call();
        if waited < self.late.notice {
            return Ok(Some(self.late.notice - waited));
        }
        let missing = missing(state);
        if waited >= self.late.deadline {
            let what = lateness::too_late(&missing, call, waited);
            return Err(self.broken(rank, state, &what, lateness::TOO_LATE));
        }
        let mut again = self.late.deadline - waited;
        for late in missing {
            let before = state.ranks[late].told;
            if state.ranks[late].doing != Doing::Running {
                continue;
            }
            let (told, rest) = self.late.due(self.recorders[late].computed());
            again = again.min(rest);
            if told != before {
                let doing = state.ranks[late].in_words(self.recorders[late].last());
                lateness::say(told, late, rank, call, waited, &doing);
                state.ranks[late].told = told;
            }
        }
        Ok(Some(again))
    }

    /// An error if one of the ranks that a call still needs has ended.
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
        match missing(state).into_iter().find(|&r| state.ranks[r].doing == Doing::Ended) {
            Some(gone) => {
                let what = format!("rank {gone} ended, and never entered {call}");
                Err(self.broken(rank, state, &what, SAME_CALLS))
            }
            None => Ok(()),
        }
    }

    /// Sleeps until a moment on the link; an error as soon as the run has failed.
    pub(super) fn sleep_until<'a>(
        &'a self,
        rank: usize,
        mut state: MutexGuard<'a, State>,
        call: &Call,
        until: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>> {
        while let Some(left) = until.map(|until| until.saturating_duration_since(Instant::now())) {
            if left.is_zero() {
                break;
            }
            state.stop_if_failed(rank, call)?;
            state = self.sleep(rank, state, Some(left));
        }
        Ok(state)
    }

    /// Gives its core away until its bell rings, or `most` has passed. May also return for no reason.
    pub(super) fn sleep<'a>(
        &'a self,
        rank: usize,
        state: MutexGuard<'a, State>,
        most: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let Bell { wake, asleep, .. } = &self.bells[rank];
        asleep.fetch_add(1, Relaxed);
        let state = match most {
            Some(most) => wake.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
            None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        asleep.fetch_sub(1, Relaxed);
        state
    }

    /// Waits for a moment without going to sleep, where there is a core for each rank.
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
            // Whoever is waited for may have been put on the same core.
            thread::yield_now();
        }
    }

    /// Wakes `rank`, which then looks whether what it waits for has happened. What has happened was written with the
    /// lock held, which may have been let go of since: who was about to sleep has seen it, or sleeps and hears the bell.
    pub(super) fn ring(&self, rank: usize) {
        let Bell { wake, asleep, .. } = &self.bells[rank];
        if asleep.load(Relaxed) > 0 {
            wake.notify_all();
        }
    }

    /// Wakes `rank`, to which a message was sent.
    pub(super) fn ring_for_mail(&self, rank: usize) {
        self.bells[rank].messages.fetch_add(1, Release);
        self.ring(rank);
    }

    /// Lets go of the lock until a message comes, for as long as [`Run::spin`] waits.
    pub(super) fn spin_for_mail<'a>(&'a self, rank: usize, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !self.may_spin {
            return state;
        }
        let messages = &self.bells[rank].messages;
        let seen = messages.load(Relaxed);
        drop(state);
        self.spin(|| messages.load(Acquire) != seen);
        self.lock()
    }

    /// Ends the run: records why, with a line for every rank, and wakes everyone.
    pub(super) fn broken(&self, rank: usize, state: &mut State, what: &str, help: &str) -> CommError {
        state.now(rank, Doing::Waiting);
        let mut text = what.to_string();
        for (r, rank) in state.ranks.iter().enumerate() {
            text += &format!("\n  rank {r}  {}", rank.in_words(self.recorders[r].last()));
        }
        text += &format!("\nhelp: {help}");
        if let Some(file) = &self.flight_file {
            let saved = recorder::save(file, self.recorders.iter().enumerate());
            text += &recorder::in_words(saved, file);
        }
        state.failure = Some(text.clone());
        self.over.notify_all();
        (0..self.size()).for_each(|rank| self.ring(rank));
        CommError::Broken(text)
    }

    /// A copy of a message, in memory that an earlier one may have left.
    pub(super) fn copy(&self, data: &[u8]) -> Vec<u8> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |vector: &Vec<u8>| vector.capacity() >= data.len() && vector.capacity() / 2 <= data.len();
        let mut copy = spare.iter().position(fits).map(|i| spare.swap_remove(i)).unwrap_or_default();
        drop(spare);
        copy.clear();
        copy.extend_from_slice(data);
        copy
    }

    /// Keeps a message's memory for the next one: two a rank, so that what is kept does not grow.
    pub(super) fn recycle(&self, message: Vec<u8>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// What these ranks may be waiting for has happened: they will look.
    pub fn may_go_on(&mut self, ranks: &[usize]) {
        // Mostly there is none, and what others write need not be fetched.
        if self.waiting == 0 {
            return;
        }
        for &rank in ranks {
            if self.ranks[rank].doing == Doing::Waiting {
                self.now(rank, Doing::Running);
            }
        }
    }

    /// The message that the next receive on a lane gets.
    pub fn first_mail(&self, lane: &Lane) -> Option<&Message> {
        self.mail.get(lane).and_then(VecDeque::front)
    }

    /// Messages that are still there: sender, receiver, how many, and the latest.
    fn unreceived(&self) -> Vec<(usize, usize, u64, Call)> {
        let left = |(lane, queue): (&Lane, &VecDeque<Message>)| {
            queue.back().map(|latest| (*lane, queue.len() as u64, latest.call))
        };
        let mut left: Vec<_> = self.mail.iter().filter_map(left).collect();
        left.sort_by_key(|(lane, ..)| *lane);
        left.into_iter().map(|((_, from, to, _), count, latest)| (from, to, count, latest)).collect()
    }

    pub fn stop_if_failed(&self, rank: usize, call: &Call) -> Result<()> {
        match &self.failure {
            Some(cause) => Err(CommError::Stopped { rank, call: call.to_string(), cause: cause.clone() }),
            None => Ok(()),
        }
    }
}

impl Rank {
    fn in_words(&self, last: Option<Entry>) -> String {
        let Some(last) = last else {
            let ended = "ended without any communication call";
            return if self.doing == Doing::Ended { ended } else { "has made no communication call yet" }.to_string();
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
