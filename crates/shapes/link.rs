//! A network link in two numbers, and the time of each call on it: a message of S bytes takes
//! `latency + S / bandwidth`.

use crate::named::named;
use crate::units;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The cost of a message between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds from the last byte's departure to its arrival.
    pub latency: f64,
    /// Bytes per second.
    pub bandwidth: f64,
}

impl Link {
    /// Seconds that a message of `bytes` keeps its sender's and its receiver's link busy.
    pub fn transfer_seconds(&self, bytes: usize) -> f64 {
        bytes as f64 / self.bandwidth
    }

    /// Seconds of a message of `bytes` from rank to rank: a + S/B.
    pub fn message_seconds(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }

    /// Seconds in which all parts of an array of `bytes` go around a ring of `ranks`: (n-1)·a +
    /// (n-1)/n·S/B. A reduce-scatter and an all-gather are one way round, an all-reduce is both.
    pub fn ring_seconds(&self, ranks: usize, bytes: f64) -> f64 {
        let others = ranks.saturating_sub(1) as f64;
        let share = others / ranks.max(1) as f64;
        others * self.latency + share * bytes / self.bandwidth
    }

    /// Seconds of recursive doubling or halving, or of a tree that halves what it still has to
    /// send: ⌈log2 n⌉·a + (n-1)/n·S/B. Few hops, for the bytes of a ring.
    pub fn doubling_seconds(&self, ranks: usize, bytes: f64) -> f64 {
        let rounds = ranks.next_power_of_two().trailing_zeros() as f64;
        let share = ranks.saturating_sub(1) as f64 / ranks.max(1) as f64;
        rounds * self.latency + share * bytes / self.bandwidth
    }

    /// The knee, in bytes: here latency and transfer take the same time, and half of the bandwidth
    /// is reached.
    pub fn knee(&self) -> f64 {
        self.latency * self.bandwidth
    }

    /// Seconds of a collective among `ranks` ranks, from when the last rank enters until all ranks
    /// are done.
    ///
    /// `bytes` is the size S of the whole vector: all ranks' parts in a collective with parts, and
    /// 0 in a barrier. With n ranks, latency a and bandwidth B:
    ///
    /// | collective | algorithm | seconds |
    /// |---|---|---|
    /// | all-reduce | ring: reduce-scatter, then all-gather | 2(n-1)·a + 2(n-1)/n·S/B |
    /// | all-gather, reduce-scatter, split | ring | (n-1)·a + (n-1)/n·S/B |
    /// | all-to-all | pairwise exchange | (n-1)·a + (n-1)/n·S/B |
    /// | the same with unequal parts, of which one rank sends or receives S at most | pairwise exchange | (n-1)·a + S/B |
    /// | broadcast, reduce | binomial tree | ⌈log2 n⌉·(a + S/B) |
    /// | scatter, gather | binomial tree, half of the remaining parts in each round | ⌈log2 n⌉·a + (n-1)/n·S/B |
    /// | barrier | dissemination | ⌈log2 n⌉·a |
    /// | send, receive | one message | a + S/B |
    ///
    /// Source: Thakur, Rabenseifner, Gropp, *Optimization of Collective Communication Operations in
    /// MPICH* (2005), without its term for computing.
    pub fn collective_seconds(&self, kind: CallKind, ranks: usize, bytes: usize) -> f64 {
        use CallKind::*;
        if ranks <= 1 && !matches!(kind, Send | Recv) {
            return 0.0;
        }
        let depth = ranks.next_power_of_two().trailing_zeros() as f64;
        let bytes = bytes as f64;
        let ring = self.ring_seconds(ranks, bytes);
        match kind.collective() {
            AllReduce => 2.0 * ring,
            AllGather | ReduceScatter | AllToAll | Split => ring,
            Broadcast | Reduce => depth * self.message_seconds(bytes),
            Scatter | Gather | Barrier => self.doubling_seconds(ranks, bytes),
            Send | Recv => self.message_seconds(bytes),
            AllToAllV => (ranks - 1) as f64 * self.latency + bytes / self.bandwidth,
            _ => 0.0,
        }
    }
}

/// Prints `1.00 GB/s, 50.0 µs`.
impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{}/s, {}",
            units::bytes_decimal(self.bandwidth),
            units::seconds(self.latency)
        )
    }
}

named! {
    /// The communication calls, by the names of their methods in the library's `Comm`.
    #[derive(Serialize, Deserialize)]
    pub enum CallKind {
        Barrier = "barrier",
        AllReduce = "all_reduce",
        StartAllReduce = "start_all_reduce",
        StartReduce = "start_reduce",
        StartAllGather = "start_all_gather",
        StartReduceScatter = "start_reduce_scatter",
        StartAllToAllV = "start_all_to_all_v",
        Reduce = "reduce",
        Broadcast = "broadcast",
        AllGather = "all_gather",
        ReduceScatter = "reduce_scatter",
        Scatter = "scatter",
        Gather = "gather",
        AllToAll = "all_to_all",
        AllToAllV = "all_to_all_v",
        Split = "split",
        Send = "send",
        Recv = "recv",
        Probe = "probe",
    }
}

impl CallKind {
    /// The blocking call that does the same as a non-blocking one; any other call is its own.
    pub fn collective(self) -> CallKind {
        match self {
            CallKind::StartAllReduce => CallKind::AllReduce,
            CallKind::StartReduce => CallKind::Reduce,
            CallKind::StartAllGather => CallKind::AllGather,
            CallKind::StartReduceScatter => CallKind::ReduceScatter,
            CallKind::StartAllToAllV => CallKind::AllToAllV,
            blocking => blocking,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_the_table_s() {
        let link = Link { latency: 1.0, bandwidth: 10.0 };
        for (kind, ranks, bytes, seconds) in [
            (CallKind::AllReduce, 4, 40, 6.0 + 6.0),
            (CallKind::AllGather, 4, 40, 3.0 + 3.0),
            (CallKind::ReduceScatter, 5, 50, 4.0 + 4.0),
            (CallKind::AllToAll, 2, 40, 1.0 + 2.0),
            (CallKind::AllToAllV, 4, 40, 3.0 + 4.0),
            (CallKind::Broadcast, 5, 20, 3.0 * (1.0 + 2.0)),
            (CallKind::Reduce, 8, 20, 3.0 * (1.0 + 2.0)),
            (CallKind::Scatter, 4, 40, 2.0 + 3.0),
            (CallKind::Gather, 3, 30, 2.0 + 2.0),
            (CallKind::Barrier, 9, 0, 4.0),
            (CallKind::Send, 2, 10, 2.0),
            (CallKind::AllReduce, 1, 40, 0.0),
        ] {
            let is = link.collective_seconds(kind, ranks, bytes);
            assert!((is - seconds).abs() < 1e-12, "{kind:?} on {ranks} ranks: {is}");
        }
    }
}
