//! The cost of communication for one rank: calls, bytes, seconds.
//!
//! Between threads, bytes are counted where they move: the rank that copies or adds up numbers of
//! another rank's memory counts them as sent by that rank. So a count can differ from a formula,
//! and does if a call moves more than it has to. An MPI library does not say which way its bytes
//! take. There the count is what the calls need at least.

use super::call::{Call, CallKind};
use std::ops::{Range, Sub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts of one rank since it started, in one group or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommTraffic {
    /// Collectives that this rank entered, and messages that it sent.
    pub calls: u64,
    /// Messages that this rank sent. The transport's own collectives count none.
    pub messages: u64,
    /// Bytes that went from this rank's memory to other ranks' memory. Over MPI: what this rank's
    /// calls have to send, by formula. A collective that was started counts when the rank waits for
    /// it.
    pub bytes: u64,
    /// Rounds of sends and receives. A send and the receive after it are one round, because both
    /// are in flight at the same time. Any other send or receive is a round by itself. The
    /// transport's own collectives count none.
    pub rounds: u64,
    /// Seconds inside communication calls, waiting included.
    pub seconds: f64,
}

impl Sub for CommTraffic {
    type Output = CommTraffic;
    /// The traffic since an earlier reading.
    fn sub(self, earlier: CommTraffic) -> CommTraffic {
        CommTraffic {
            calls: self.calls - earlier.calls,
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
            rounds: self.rounds - earlier.rounds,
            seconds: self.seconds - earlier.seconds,
        }
    }
}

/// Counts the traffic of one rank in one group, and in all its groups.
#[derive(Default)]
pub(super) struct Meter {
    group: Mutex<CommTraffic>,
    total: Arc<Mutex<CommTraffic>>,
    /// Whether the last call in the group was a send, with which a receive makes one round.
    sending: AtomicBool,
    /// Bytes of the call that is being made. They are added with its time.
    bytes: AtomicU64,
}

impl Meter {
    /// The same rank's meter in one more group.
    pub fn of_group(&self) -> Meter {
        Meter { total: self.total.clone(), ..Meter::default() }
    }

    /// Counts a call that the rank has made, and what it sent in it.
    pub fn called(&self, call: &Call, time: Duration) {
        let was_sending = self.sending.swap(call.kind == CallKind::Send, Relaxed);
        let sends = call.kind == CallKind::Send;
        let receives = call.kind == CallKind::Recv;
        self.add(CommTraffic {
            calls: u64::from(!receives),
            messages: u64::from(sends),
            bytes: self.bytes.swap(0, Relaxed),
            rounds: u64::from(sends || (receives && !was_sending)),
            seconds: time.as_secs_f64(),
        });
    }

    /// Counts bytes that went from this rank's memory to other ranks' in the call that is being
    /// made.
    pub fn sent(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Adds time in a call that was counted before, and what the rank sent in it.
    pub fn waited(&self, time: Duration) {
        let bytes = self.bytes.swap(0, Relaxed);
        self.add(CommTraffic { bytes, seconds: time.as_secs_f64(), ..CommTraffic::default() });
    }

    fn add(&self, more: CommTraffic) {
        for traffic in [&self.group, &*self.total] {
            let mut traffic = lock(traffic);
            traffic.calls += more.calls;
            traffic.messages += more.messages;
            traffic.bytes += more.bytes;
            traffic.rounds += more.rounds;
            traffic.seconds += more.seconds;
        }
    }

    pub fn read(&self) -> CommTraffic {
        *lock(&self.group)
    }

    pub fn total(&self) -> CommTraffic {
        *lock(&self.total)
    }
}

/// Locks a mutex. After a panic of the thread that had it, the run is failing anyway, and what was
/// counted still holds.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Part number `part` of `len` elements that are divided into `parts` parts, as evenly as possible.
pub(super) fn even_part(len: usize, part: usize, parts: usize) -> Range<usize> {
    part * len / parts..(part + 1) * len / parts
}

#[cfg(test)]
mod tests {
    use super::super::transport::mpi::traffic::by_calls;
    use super::super::{Comm, Options, Reduce, Result, ThreadWorld};
    use super::*;

    /// What each rank's calls send, as counted and by formula: pairs, with the call's name.
    fn sent(ranks: usize, len: usize) -> Vec<Vec<(&'static str, u64, u64)>> {
        let run = ThreadWorld::new(ranks, &Options::default());
        std::thread::scope(|scope| {
            let of_rank = |rank| {
                let comm = run.comm(rank);
                scope.spawn(move || all_calls(&comm, len).unwrap())
            };
            let ranks: Vec<_> = (0..ranks).map(of_rank).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    fn all_calls(comm: &Comm, len: usize) -> Result<Vec<(&'static str, u64, u64)>> {
        let rank = comm.rank();
        let size = comm.size();
        let root = comm.size() - 1;
        let mut mine = vec![1f32; len];
        let mut all = vec![1f32; len * size];
        let mut pairs = Vec::new();
        for kind in CallKind::ALL {
            let (op, peer) = match kind {
                CallKind::AllReduce
                | CallKind::StartAllReduce
                | CallKind::ReduceScatter
                | CallKind::StartReduceScatter => (Some(Reduce::Sum), None),
                CallKind::Reduce | CallKind::StartReduce => (Some(Reduce::Sum), Some(root)),
                CallKind::Broadcast | CallKind::Scatter | CallKind::Gather => (None, Some(root)),
                CallKind::Send => (None, Some((rank + 1) % size)),
                _ => (None, None),
            };
            let call = comm.describe::<f32>(kind, len, op, peer)?;
            let before = comm.traffic().bytes;
            match kind {
                CallKind::Barrier => comm.barrier()?,
                CallKind::AllReduce => comm.all_reduce(&mut mine, Reduce::Sum)?,
                CallKind::StartAllReduce => {
                    drop(comm.start_all_reduce(mine.clone(), Reduce::Sum)?.wait()?)
                }
                CallKind::StartReduce => {
                    drop(comm.start_reduce(mine.clone(), Reduce::Sum, root)?.wait()?)
                }
                CallKind::StartAllGather => drop(comm.start_all_gather(all.clone())?.wait()?),
                CallKind::StartReduceScatter => {
                    drop(comm.start_reduce_scatter(all.clone(), Reduce::Sum)?.wait()?)
                }
                CallKind::Reduce => comm.reduce(&mut mine, Reduce::Sum, root)?,
                CallKind::Broadcast => comm.broadcast(&mut mine, root)?,
                CallKind::AllGather => comm.all_gather(&mine, &mut all)?,
                CallKind::ReduceScatter => comm.reduce_scatter(&all, &mut mine, Reduce::Sum)?,
                CallKind::Scatter => comm.scatter(&all, &mut mine, root)?,
                CallKind::Gather => comm.gather(&mine, &mut all, root)?,
                CallKind::AllToAll => comm.all_to_all(&all.clone(), &mut all)?,
                // Its bytes do not follow from its length: see the test of collectives.
                CallKind::AllToAllV | CallKind::StartAllToAllV => continue,
                CallKind::Split => drop(comm.split(0, 0)?),
                CallKind::Send => comm.send(&mine, (rank + 1) % size)?,
                CallKind::Recv => comm.recv(&mut mine, (rank + size - 1) % size)?,
                CallKind::Probe => continue,
            }
            pairs.push((kind.name(), comm.traffic().bytes - before, by_calls(&call, rank, size)));
        }
        Ok(pairs)
    }

    /// No rank moves more or less than a call needs, whichever rank does the work: small vectors,
    /// and ones of several blocks.
    #[test]
    fn ranks_move_the_bytes_that_their_calls_need() {
        for (ranks, len) in [
            (1, 5),
            (2, 0),
            (2, 1),
            (2, 50_001),
            (3, 1),
            (3, 100_003),
            (4, 1000),
            (5, 33_333),
        ] {
            for (rank, calls) in sent(ranks, len).into_iter().enumerate() {
                for (call, counted, expected) in calls {
                    assert_eq!(
                        counted, expected,
                        "{call} of {len} elements, rank {rank} of {ranks}"
                    );
                }
            }
        }
    }
}
