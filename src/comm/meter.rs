//! What communication cost one rank: messages, bytes, seconds.

use super::call::{Call, Kind};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts of one rank since it started, in one group or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Messages that this rank sent to other ranks.
    pub messages: u64,
    /// Bytes that this rank sent to other ranks.
    pub bytes: u64,
    /// Rounds made of sends and receives. A send and the receive after it are one round, because both are under way at the
    /// same time; any other send or receive is a round of its own. The transport's own collectives count none.
    pub rounds: u64,
    /// Seconds inside communication calls, waiting included.
    pub seconds: f64,
}

impl std::ops::Add for Traffic {
    type Output = Traffic;
    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            rounds: self.rounds + other.rounds,
            seconds: self.seconds + other.seconds,
        }
    }
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;
    /// What was added since an earlier reading.
    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
            rounds: self.rounds - earlier.rounds,
            seconds: self.seconds - earlier.seconds,
        }
    }
}

/// The meters of all groups of a rank. A call is counted in its group's alone: the total costs nothing until it is asked for.
#[derive(Clone, Default)]
pub(super) struct Meters(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    groups: Vec<Arc<Meter>>,
    /// In groups that are no more.
    before: Traffic,
}

impl Meters {
    /// The meter of one more group.
    pub fn add(&self) -> Arc<Meter> {
        let (meter, mut counted) = (Arc::new(Meter::default()), self.lock());
        let (gone, groups) = std::mem::take(&mut counted.groups).into_iter().partition(|m| Arc::strong_count(m) == 1);
        counted.groups = groups;
        let gone: Vec<Arc<Meter>> = gone;
        counted.before = gone.iter().fold(counted.before, |sum, meter| sum + meter.read());
        counted.groups.push(meter.clone());
        meter
    }

    pub fn total(&self) -> Traffic {
        let counted = self.lock();
        counted.groups.iter().fold(counted.before, |sum, meter| sum + meter.read())
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
pub(super) struct Meter {
    messages: AtomicU64,
    bytes: AtomicU64,
    rounds: AtomicU64,
    /// Whether the last call was a send, with which a receive makes one round.
    sending: AtomicBool,
    nanoseconds: AtomicU64,
}

impl Meter {
    /// Notes a call that `rank` of `size` has made.
    pub fn count(&self, call: &Call, rank: usize, size: usize, time: Duration) {
        let (messages, bytes) = sent(call, rank, size);
        self.messages.fetch_add(messages as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        let sending = self.sending.swap(call.kind == Kind::Send, Relaxed);
        let round = call.kind == Kind::Send || (call.kind == Kind::Recv && !sending);
        self.rounds.fetch_add(u64::from(round), Relaxed);
        self.waited(time);
    }

    /// Notes more time in a call that was counted before.
    pub fn waited(&self, time: Duration) {
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub fn read(&self) -> Traffic {
        Traffic {
            messages: self.messages.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            rounds: self.rounds.load(Relaxed),
            seconds: self.nanoseconds.load(Relaxed) as f64 * 1e-9,
        }
    }
}

/// Messages and bytes that a rank sends to others in a call.
///
/// This is what really moves between threads: reductions as reduce-scatter and all-gather, the rest directly from the rank
/// that has to the rank that wants. An MPI library may go other ways, and does not tell.
fn sent(call: &Call, rank: usize, size: usize) -> (usize, usize) {
    let (others, bytes) = (size - 1, call.len * call.dtype.size());
    let is_peer = call.peer.is_some_and(|peer| peer.rank == rank);
    match call.kind {
        Kind::Barrier | Kind::Split => (others, 0),
        Kind::AllReduce | Kind::StartAllReduce => {
            let mine = even_part(call.len, rank, size).len() * call.dtype.size();
            (2 * others, bytes - mine + others * mine)
        }
        Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll => (others, others * bytes),
        Kind::StartAllGather | Kind::StartReduceScatter => (others, others * bytes),
        Kind::Broadcast | Kind::Scatter if is_peer => (others, others * bytes),
        Kind::Broadcast | Kind::Scatter => (0, 0),
        Kind::Reduce | Kind::StartReduce | Kind::Gather | Kind::Send if !is_peer => (1, bytes),
        Kind::Reduce | Kind::StartReduce | Kind::Gather | Kind::Send | Kind::Recv | Kind::Probe => (0, 0),
    }
}

/// Part number `part` of `len` elements that are dealt out to `parts` as evenly as possible.
pub(super) fn even_part(len: usize, part: usize, parts: usize) -> Range<usize> {
    part * len / parts..(part + 1) * len / parts
}
