//! A task: a collective, an algorithm for it, a number of ranks and elements.

use super::round::{Member, Round};
use super::{chain, flat, pairwise, rabenseifner, recursive, ring, tree};
use crate::comm::{CommError, Result};
use crate::named::named;
use Algorithm::*;
use Collective::*;

named! {
    /// The collectives that algorithms here build from sends and receives.
    #[derive(Hash)]
    pub enum Collective {
        AllReduce = "all-reduce",
        Reduce = "reduce",
        Broadcast = "broadcast",
        AllGather = "all-gather",
        ReduceScatter = "reduce-scatter",
        Scatter = "scatter",
        Gather = "gather",
        AllToAll = "all-to-all",
    }
}

named! {
    /// The ways to execute a collective.
    #[derive(Hash)]
    pub enum Algorithm {
        /// Chosen by the bytes and the number of ranks
        Auto = "auto",
        /// Everything to rank 0, and back
        Naive = "naive",
        /// One chunk per round, passed to the right
        Ring = "ring",
        /// Partners at distances 1, 2, 4, ... exchange what they have
        RecursiveDoubling = "recursive-doubling",
        /// Partners at distances ..., 4, 2, 1 divide what they have
        RecursiveHalving = "recursive-halving",
        /// Halving, then doubling
        Rabenseifner = "rabenseifner",
        /// The root exchanges data with each rank itself
        Flat = "flat",
        /// Every rank that has the data helps to spread it: a binomial tree
        Tree = "tree",
        /// From rank to rank in segments
        Chain = "chain",
        /// In round k with the ranks k before and after
        Pairwise = "pairwise",
    }
}

impl Collective {
    /// The algorithms that exist for this collective.
    pub fn algorithms(self) -> &'static [Algorithm] {
        match self {
            AllReduce => &[Naive, Ring, RecursiveDoubling, Rabenseifner],
            Reduce | Broadcast => &[Flat, Tree, Chain],
            AllGather => &[Ring, RecursiveDoubling],
            ReduceScatter => &[Ring, RecursiveHalving],
            Scatter | Gather => &[Flat, Tree],
            AllToAll => &[Pairwise],
        }
    }

    /// The algorithm that [`Algorithm::Auto`] chooses, for `bytes` in the whole buffer
    /// ([`Task::buffer`]).
    ///
    /// | collective | few bytes | many bytes |
    /// |---|---|---|
    /// | all-reduce | below 16 KiB: recursive doubling | the ring if n is no power of two and parts have 4 KiB or more; else Rabenseifner |
    /// | all-gather, reduce-scatter | n a power of two, or below 16 KiB: recursive | ring |
    /// | reduce, broadcast | tree | as many segments of 64 KiB as ranks, and 3 ranks or more: chain |
    /// | scatter, gather | tree | parts of 64 KiB or more: flat |
    ///
    /// Short messages cost latency, so the algorithm with the fewest rounds wins. Long messages
    /// cost bandwidth, so the one with the fewest bytes wins. MPI libraries switch at about these
    /// sizes; the lab measures where to switch on this machine.
    pub fn auto(self, ranks: usize, bytes: usize) -> Algorithm {
        const KIB: usize = 1024;
        let few = bytes < 16 * KIB;
        match self {
            AllReduce if few => RecursiveDoubling,
            AllReduce if !ranks.is_power_of_two() && bytes >= ranks * 4 * KIB => Ring,
            AllReduce => Rabenseifner,
            AllGather if few || ranks.is_power_of_two() => RecursiveDoubling,
            ReduceScatter if few || ranks.is_power_of_two() => RecursiveHalving,
            AllGather | ReduceScatter => Ring,
            Reduce | Broadcast if ranks > 2 && bytes >= ranks * 64 * KIB => Chain,
            Scatter | Gather if bytes >= ranks * 64 * KIB => Flat,
            Reduce | Broadcast | Scatter | Gather => Tree,
            AllToAll => Pairwise,
        }
    }
}

/// One collective of one group, the same on all its ranks. [`Task::new`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Task {
    pub collective: Collective,
    /// Never [`Algorithm::Auto`]: [`Task::new`] resolves it.
    pub algorithm: Algorithm,
    pub ranks: usize,
    /// Elements of one part, or of the whole vector in an all-reduce, a reduce and a broadcast.
    pub len: usize,
    /// 0 in a collective without a root.
    pub root: usize,
}

impl Task {
    /// `element_bytes` and `len` decide what [`Algorithm::Auto`] chooses.
    ///
    /// # Errors
    /// [`CommError::Invalid`] if the collective has no such algorithm, or the group no such root.
    pub fn new(
        collective: Collective,
        algorithm: Algorithm,
        ranks: usize,
        len: usize,
        element_bytes: usize,
        root: usize,
    ) -> Result<Task> {
        if root >= ranks {
            return Err(CommError::Invalid {
                call: None,
                why: format!("there is no root {root} in a group of {ranks}"),
            });
        }
        let mut task = Task { collective, algorithm, ranks, len, root };
        if algorithm == Auto {
            task.algorithm = collective.auto(ranks, task.buffer().saturating_mul(element_bytes));
        } else if !collective.algorithms().contains(&algorithm) {
            let names: Vec<&str> =
                collective.algorithms().iter().map(|algorithm| algorithm.name()).collect();
            let why = format!(
                "{} has no algorithm {}; it has auto, {}",
                collective.name(),
                algorithm.name(),
                names.join(", ")
            );
            return Err(CommError::Invalid { call: None, why });
        }
        Ok(task)
    }

    /// The tasks of an all-reduce of `len` elements by `algorithm`, one after the other: a single
    /// one if it is an algorithm for all-reduces, or else a reduction to rank 0 and a broadcast
    /// from there.
    ///
    /// # Errors
    /// [`CommError::Invalid`] if neither has such an algorithm.
    pub fn of_all_reduce(
        algorithm: Algorithm,
        ranks: usize,
        len: usize,
        element_bytes: usize,
    ) -> Result<Vec<Task>> {
        let task = |collective| Task::new(collective, algorithm, ranks, len, element_bytes, 0);
        if Broadcast.algorithms().contains(&algorithm) {
            Ok(vec![task(Reduce)?, task(Broadcast)?])
        } else {
            Ok(vec![task(AllReduce)?])
        }
    }

    /// Elements of the buffer that the rounds work on. The buffer holds
    ///
    /// - the vector, in an all-reduce, a reduce and a broadcast,
    /// - one part per rank in rank order, in an all-gather and a reduce-scatter,
    /// - one part per rank, the root's first, in a scatter and a gather,
    /// - the parts to send, then the parts to receive, in an all-to-all.
    pub fn buffer(&self) -> usize {
        match self.collective {
            AllReduce | Reduce | Broadcast => self.len,
            AllGather | ReduceScatter | Scatter | Gather => self.len * self.ranks,
            AllToAll => 2 * self.len * self.ranks,
        }
    }

    /// The rounds of `rank`, in order.
    pub fn rounds(&self, rank: usize) -> Box<dyn Iterator<Item = Round>> {
        let me = Member { ranks: self.ranks, rank, len: self.buffer() };
        let root = self.root;
        match (self.collective, self.algorithm) {
            (AllReduce, Naive) => Box::new(flat::all_reduce(me)),
            (AllReduce, Ring) => Box::new(ring::all_reduce(me)),
            (AllReduce, RecursiveDoubling) => Box::new(recursive::all_reduce(me)),
            (AllReduce, Rabenseifner) => Box::new(rabenseifner::all_reduce(me)),
            (Reduce, Flat) => Box::new(flat::reduce(me, root)),
            (Reduce, Tree) => Box::new(tree::reduce(me, root)),
            (Reduce, Chain) => Box::new(chain::reduce(me, root)),
            (Broadcast, Flat) => Box::new(flat::broadcast(me, root)),
            (Broadcast, Tree) => Box::new(tree::broadcast(me, root)),
            (Broadcast, Chain) => Box::new(chain::broadcast(me, root)),
            (AllGather, Ring) => Box::new(ring::all_gather(me)),
            (AllGather, RecursiveDoubling) => Box::new(recursive::all_gather(me)),
            (ReduceScatter, Ring) => Box::new(ring::reduce_scatter(me)),
            (ReduceScatter, RecursiveHalving) => Box::new(recursive::reduce_scatter(me)),
            (Scatter, Flat) => Box::new(flat::scatter(me, root)),
            (Scatter, Tree) => Box::new(tree::scatter(me, root)),
            (Gather, Flat) => Box::new(flat::gather(me, root)),
            (Gather, Tree) => Box::new(tree::gather(me, root)),
            (AllToAll, Pairwise) => Box::new(pairwise::all_to_all(me)),
            (collective, algorithm) => {
                unreachable!("a task is made by Task::new, not for {collective:?}, {algorithm:?}")
            }
        }
    }

    /// Rounds from the first to the last round of any rank.
    pub fn total_rounds(&self) -> usize {
        let last = |rank| self.rounds(rank).last().map_or(0, |round| round.number + 1);
        (0..self.ranks).map(last).max().unwrap_or(0)
    }
}
