//! What is to be done and how: a collective, an algorithm for it, ranks and elements.

use super::round::{Member, Round};
use super::{chain, flat, pairwise, rabenseifner, recursive, ring, tree};
use crate::comm::{CommError, Result};

/// The collectives that are built of sends and receives here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Collective {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    Scatter,
    Gather,
    AllToAll,
}

/// How a collective is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Algorithm {
    /// Chosen by the bytes and the number of ranks
    Auto,
    /// Everything to rank 0, and back
    Naive,
    /// One part a round, passed to the right
    Ring,
    /// Partners at distances 1, 2, 4, ... exchange what they have
    RecursiveDoubling,
    /// Partners at distances ..., 4, 2, 1 divide what they have
    RecursiveHalving,
    /// Halving, then doubling
    Rabenseifner,
    /// The root deals with each rank itself
    Flat,
    /// Whoever has the data helps to spread it: a binomial tree
    Tree,
    /// From rank to rank in segments
    Chain,
    /// In round k with the ranks k before and after
    Pairwise,
}

impl Collective {
    pub const ALL: [Collective; 8] = [
        Collective::AllReduce,
        Collective::Reduce,
        Collective::Broadcast,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Scatter,
        Collective::Gather,
        Collective::AllToAll,
    ];

    /// As the field writes it.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all-reduce",
            Collective::Reduce => "reduce",
            Collective::Broadcast => "broadcast",
            Collective::AllGather => "all-gather",
            Collective::ReduceScatter => "reduce-scatter",
            Collective::Scatter => "scatter",
            Collective::Gather => "gather",
            Collective::AllToAll => "all-to-all",
        }
    }

    /// The algorithms that there are for it.
    pub fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Collective::AllReduce => {
                &[Algorithm::Naive, Algorithm::Ring, Algorithm::RecursiveDoubling, Algorithm::Rabenseifner]
            }
            Collective::Reduce | Collective::Broadcast => &[Algorithm::Flat, Algorithm::Tree, Algorithm::Chain],
            Collective::AllGather => &[Algorithm::Ring, Algorithm::RecursiveDoubling],
            Collective::ReduceScatter => &[Algorithm::Ring, Algorithm::RecursiveHalving],
            Collective::Scatter | Collective::Gather => &[Algorithm::Flat, Algorithm::Tree],
            Collective::AllToAll => &[Algorithm::Pairwise],
        }
    }

    /// The algorithm that [`Algorithm::Auto`] stands for, with `bytes` in the whole buffer ([`Task::buffer`]).
    ///
    /// | collective | few bytes | many bytes |
    /// |---|---|---|
    /// | all-reduce | below 16 KiB: recursive doubling | n a power of two: Rabenseifner; else the ring while its parts have 4 KiB, else Rabenseifner |
    /// | all-gather, reduce-scatter | n a power of two, or below 16 KiB: recursive | ring |
    /// | reduce, broadcast | tree | as many segments of 64 KiB as ranks, and 3 ranks or more: chain |
    /// | scatter, gather | tree | parts of 64 KiB or more: flat |
    ///
    /// Few bytes cost the latency of their rounds, so that few rounds win; many cost the bandwidth, so that few bytes win.
    /// The sizes are those at which MPI libraries change over, in round numbers; the lab measures where they should be.
    pub fn auto(self, ranks: usize, bytes: usize) -> Algorithm {
        const KIB: usize = 1024;
        let few = bytes < 16 * KIB;
        match self {
            Collective::AllReduce if few => Algorithm::RecursiveDoubling,
            Collective::AllReduce if !ranks.is_power_of_two() && bytes >= ranks * 4 * KIB => Algorithm::Ring,
            Collective::AllReduce => Algorithm::Rabenseifner,
            Collective::AllGather if few || ranks.is_power_of_two() => Algorithm::RecursiveDoubling,
            Collective::ReduceScatter if few || ranks.is_power_of_two() => Algorithm::RecursiveHalving,
            Collective::AllGather | Collective::ReduceScatter => Algorithm::Ring,
            Collective::Reduce | Collective::Broadcast if ranks > 2 && bytes >= ranks * 64 * KIB => Algorithm::Chain,
            Collective::Scatter | Collective::Gather if bytes >= ranks * 64 * KIB => Algorithm::Flat,
            Collective::Reduce | Collective::Broadcast | Collective::Scatter | Collective::Gather => Algorithm::Tree,
            Collective::AllToAll => Algorithm::Pairwise,
        }
    }
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Auto => "auto",
            Algorithm::Naive => "naive",
            Algorithm::Ring => "ring",
            Algorithm::RecursiveDoubling => "recursive-doubling",
            Algorithm::RecursiveHalving => "recursive-halving",
            Algorithm::Rabenseifner => "rabenseifner",
            Algorithm::Flat => "flat",
            Algorithm::Tree => "tree",
            Algorithm::Chain => "chain",
            Algorithm::Pairwise => "pairwise",
        }
    }
}

/// One collective of one group, as all its ranks see it; made by [`Task::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Task {
    pub collective: Collective,
    /// Not [`Algorithm::Auto`].
    pub algorithm: Algorithm,
    pub ranks: usize,
    /// Elements that one rank contributes: a whole vector (all-reduce, reduce, broadcast), one part (all-gather, scatter,
    /// gather), or one part for each rank (reduce-scatter, all-to-all: elements of one part).
    pub len: usize,
    /// 0 where there is none.
    pub root: usize,
}

impl Task {
    /// `element_bytes` and `len` decide what [`Algorithm::Auto`] stands for. An error if the algorithm is for another
    /// collective, or there are no ranks or no such root.
    pub fn new(
        collective: Collective,
        algorithm: Algorithm,
        ranks: usize,
        len: usize,
        element_bytes: usize,
        root: usize,
    ) -> Result<Task> {
        if root >= ranks {
            return Err(CommError::Invalid(format!("there is no root {root} in a group of {ranks}")));
        }
        let mut task = Task { collective, algorithm, ranks, len, root };
        if algorithm == Algorithm::Auto {
            task.algorithm = collective.auto(ranks, task.buffer().saturating_mul(element_bytes));
        } else if !collective.algorithms().contains(&algorithm) {
            let names: Vec<&str> = collective.algorithms().iter().map(|algorithm| algorithm.name()).collect();
            return Err(CommError::Invalid(format!(
                "{} has no algorithm {}; it has auto, {}",
                collective.name(),
                algorithm.name(),
                names.join(", ")
            )));
        }
        Ok(task)
    }

    /// Elements of the buffer that the rounds work on.
    ///
    /// The vector (all-reduce, reduce, broadcast); a part for each rank, in rank order (all-gather, reduce-scatter) or from
    /// the root on (scatter, gather); for an all-to-all the parts to be sent, then those received.
    pub fn buffer(&self) -> usize {
        match self.collective {
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast => self.len,
            Collective::AllGather | Collective::ReduceScatter | Collective::Scatter | Collective::Gather => {
                self.len * self.ranks
            }
            Collective::AllToAll => 2 * self.len * self.ranks,
        }
    }

    /// What `rank` does, in the order in which it does it.
    pub fn rounds(&self, rank: usize) -> Box<dyn Iterator<Item = Round>> {
        let (me, root) = (Member { ranks: self.ranks, rank, len: self.buffer() }, self.root);
        match (self.collective, self.algorithm) {
            (Collective::AllReduce, Algorithm::Naive) => Box::new(flat::all_reduce(me)),
            (Collective::AllReduce, Algorithm::Ring) => Box::new(ring::all_reduce(me)),
            (Collective::AllReduce, Algorithm::RecursiveDoubling) => Box::new(recursive::all_reduce(me)),
            (Collective::AllReduce, Algorithm::Rabenseifner) => Box::new(rabenseifner::all_reduce(me)),
            (Collective::Reduce, Algorithm::Flat) => Box::new(flat::reduce(me, root)),
            (Collective::Reduce, Algorithm::Tree) => Box::new(tree::reduce(me, root)),
            (Collective::Reduce, Algorithm::Chain) => Box::new(chain::reduce(me, root)),
            (Collective::Broadcast, Algorithm::Flat) => Box::new(flat::broadcast(me, root)),
            (Collective::Broadcast, Algorithm::Tree) => Box::new(tree::broadcast(me, root)),
            (Collective::Broadcast, Algorithm::Chain) => Box::new(chain::broadcast(me, root)),
            (Collective::AllGather, Algorithm::Ring) => Box::new(ring::all_gather(me)),
            (Collective::AllGather, Algorithm::RecursiveDoubling) => Box::new(recursive::all_gather(me)),
            (Collective::ReduceScatter, Algorithm::Ring) => Box::new(ring::reduce_scatter(me)),
            (Collective::ReduceScatter, Algorithm::RecursiveHalving) => Box::new(recursive::reduce_scatter(me)),
            (Collective::Scatter, Algorithm::Flat) => Box::new(flat::scatter(me, root)),
            (Collective::Scatter, Algorithm::Tree) => Box::new(tree::scatter(me, root)),
            (Collective::Gather, Algorithm::Flat) => Box::new(flat::gather(me, root)),
            (Collective::Gather, Algorithm::Tree) => Box::new(tree::gather(me, root)),
            (Collective::AllToAll, Algorithm::Pairwise) => Box::new(pairwise::all_to_all(me)),
            (collective, algorithm) => {
                unreachable!("a task is made by Task::new, not for {collective:?}, {algorithm:?}")
            }
        }
    }

    /// Rounds from the first to the last, over all ranks.
    pub fn total_rounds(&self) -> usize {
        let last = |rank| self.rounds(rank).last().map_or(0, |round| round.number + 1);
        (0..self.ranks).map(last).max().unwrap_or(0)
    }
}
