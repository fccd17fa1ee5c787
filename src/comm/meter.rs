//! The cost of communication for one rank: messages, bytes, seconds.

use super::call::{Call, Kind};
use std::ops::{Add, Range, Sub};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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

impl Traffic {
    fn zip(self, other: Traffic, counts: fn(u64, u64) -> u64, seconds: fn(f64, f64) -> f64) -> Traffic {
        Traffic {
            messages: counts(self.messages, other.messages),
            bytes: counts(self.bytes, other.bytes),
            rounds: counts(self.rounds, other.rounds),
            seconds: seconds(self.seconds, other.seconds),
        }
    }
}

impl Add for Traffic {
    type Output = Traffic;
    fn add(self, other: Traffic) -> Traffic {
        self.zip(other, Add::add, Add::add)
    }
}

impl Sub for Traffic {
    type Output = Traffic;
    /// The traffic since an earlier reading.
    fn sub(self, earlier: Traffic) -> Traffic {
        self.zip(earlier, Sub::sub, Sub::sub)
    }
}

/// Counts the traffic of one rank in one group, and in all its groups.
#[derive(Default)]
pub(super) struct Meter {
    group: Mutex<Traffic>,
    total: Arc<Mutex<Traffic>>,
    /// Whether the last call in the group was a send, with which a receive makes one round.
    sending: AtomicBool,
}

impl Meter {
    /// The same rank's meter in one more group.
    pub fn of_group(&self) -> Meter {
        Meter { total: self.total.clone(), ..Meter::default() }
    }

    /// Counts a call that `rank` of `size` has made.
    pub fn count(&self, call: &Call, rank: usize, size: usize, time: Duration) {
        let (messages, bytes) = sent(call, rank, size);
        let was_sending = self.sending.swap(call.kind == Kind::Send, Relaxed);
        let round = call.kind == Kind::Send || (call.kind == Kind::Recv && !was_sending);
        let (messages, bytes, rounds) = (messages as u64, bytes as u64, u64::from(round));
        self.add(Traffic { messages, bytes, rounds, seconds: time.as_secs_f64() });
    }

    /// Adds time in a call that was counted before.
    pub fn waited(&self, time: Duration) {
        self.add(Traffic { seconds: time.as_secs_f64(), ..Traffic::default() });
    }

    fn add(&self, more: Traffic) {
        for traffic in [&self.group, &*self.total] {
            let mut traffic = lock(traffic);
            *traffic = *traffic + more;
        }
    }

    pub fn read(&self) -> Traffic {
        *lock(&self.group)
    }

    pub fn total(&self) -> Traffic {
        *lock(&self.total)
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
