//! The cost of communication for one rank: messages, bytes, seconds.

use super::call::{Call, Kind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts of one rank since it started, in one group or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Messages that this rank sent to other ranks.
    pub messages: u64,
    /// Bytes that this rank sent to other ranks.
    pub bytes: u64,
    /// Rounds of sends and receives. A send and the receive after it are one round, because both are in flight at the same time.
    /// Any other send or receive is a round by itself. The transport's own collectives count none.
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
    /// The traffic since an earlier reading.
    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
            rounds: self.rounds - earlier.rounds,
            seconds: self.seconds - earlier.seconds,
        }
    }
}

/// The meters of all groups of a rank. A call counts in its group's meter alone; [`Meters::total`] adds them up.
#[derive(Clone, Default)]
pub(super) struct Meters(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    groups: Vec<Arc<Meter>>,
    /// Traffic of groups that no longer exist.
    before: Traffic,
}

impl Meters {
    /// The meter of one more group.
    pub fn add(&self) -> Arc<Meter> {
        let (meter, mut counted) = (Arc::new(Meter::default()), lock(&self.0));
        let Counted { groups, before } = &mut *counted;
        groups.retain(|meter| {
            let is_used = Arc::strong_count(meter) > 1;
            if !is_used {
                *before = *before + meter.read();
            }
            is_used
        });
        groups.push(meter.clone());
        meter
    }

    pub fn total(&self) -> Traffic {
        let counted = lock(&self.0);
        counted.groups.iter().fold(counted.before, |sum, meter| sum + meter.read())
    }
}

/// The traffic of one rank in one group, and whether its last call was a send, with which a receive makes one round.
#[derive(Default)]
pub(super) struct Meter(Mutex<(Traffic, bool)>);

impl Meter {
    /// Counts a call that `rank` of `size` has made.
    pub fn count(&self, call: &Call, rank: usize, size: usize, time: Duration) {
        let (messages, bytes) = sent(call, rank, size);
        let (traffic, sending) = &mut *lock(&self.0);
        let was_sending = std::mem::replace(sending, call.kind == Kind::Send);
        let round = call.kind == Kind::Send || (call.kind == Kind::Recv && !was_sending);
        traffic.messages += messages as u64;
        traffic.bytes += bytes as u64;
        traffic.rounds += u64::from(round);
        traffic.seconds += time.as_secs_f64();
    }

    /// Adds time in a call that was counted before.
    pub fn waited(&self, time: Duration) {
        lock(&self.0).0.seconds += time.as_secs_f64();
    }

    pub fn read(&self) -> Traffic {
        lock(&self.0).0
    }
}

/// Locks a mutex. After a panic of the thread that had it, the run is failing anyway, and what was counted still holds.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages and bytes that a rank sends to others in a call.
///
/// Threads really move this much: a reduction is a reduce-scatter and an all-gather, and all other data moves directly from
/// the rank that has it to the rank that needs it. An MPI library may take different ways, which it does not report.
fn sent(call: &Call, rank: usize, size: usize) -> (usize, usize) {
    let (others, bytes) = (size - 1, call.len * call.dtype.size());
    let is_peer = call.peer.is_some_and(|peer| peer.rank == rank);
    match call.kind.collective() {
        Kind::Barrier | Kind::Split => (others, 0),
        Kind::AllReduce => {
            let mine = even_part(call.len, rank, size).len() * call.dtype.size();
            (2 * others, bytes - mine + others * mine)
        }
        Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll => (others, others * bytes),
        Kind::Broadcast | Kind::Scatter if is_peer => (others, others * bytes),
        Kind::Reduce | Kind::Gather | Kind::Send if !is_peer => (1, bytes),
        _ => (0, 0),
    }
}

/// Part number `part` of `len` elements that are divided into `parts` parts, as evenly as possible.
pub(super) fn even_part(len: usize, part: usize, parts: usize) -> Range<usize> {
    part * len / parts..(part + 1) * len / parts
}
