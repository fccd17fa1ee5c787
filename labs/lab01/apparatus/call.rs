//! Any collective by any algorithm, in one form: a rank gives one array and gets one.

use super::by_algorithm;
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::comm::{Comm, Element, Reduce, Result};

/// A collective and the algorithm that does it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    pub collective: Collective,
    /// None: the transport's own, which is shared memory between threads, and the MPI library
    /// between processes.
    pub algorithm: Option<Algorithm>,
}

impl Way {
    pub fn name(&self) -> &'static str {
        self.algorithm.map_or(
            if shardlab::launch::is_mpi() {
                "MPI library"
            } else {
                "shared memory"
            },
            Algorithm::name,
        )
    }

    /// The look of its curve, the same in every chart: a family of algorithms has one, and in no
    /// collective two ways are of one family.
    pub fn look(&self) -> usize {
        match self.algorithm {
            // All messages are the root's.
            Some(Algorithm::Naive | Algorithm::Flat) => 0,
            // From neighbour to neighbour.
            Some(Algorithm::Ring | Algorithm::Chain) => 1,
            // In pairs.
            Some(
                Algorithm::RecursiveDoubling | Algorithm::RecursiveHalving | Algorithm::Pairwise,
            ) => 2,
            Some(Algorithm::Rabenseifner) => 3,
            Some(Algorithm::Tree) => 5,
            // The transport's own.
            _ => 4,
        }
    }

    /// The algorithms of `collective`, without the transport's own.
    pub fn algorithms(collective: Collective) -> impl Iterator<Item = Way> {
        collective
            .algorithms()
            .iter()
            .map(move |&algorithm| Way { collective, algorithm: Some(algorithm) })
    }

    /// Whether the collective works in the array that a rank gets.
    pub fn in_place(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast
        )
    }

    /// Elements of the whole array, at least `elements`: as many in each rank's part, where there
    /// are parts.
    pub fn array(&self, ranks: usize, elements: usize) -> usize {
        if self.in_place() {
            elements
        } else {
            elements.next_multiple_of(ranks)
        }
    }

    /// Elements that a rank gives and that it gets, of a whole array of `array` elements.
    pub fn lengths(&self, comm: &Comm, array: usize) -> (usize, usize) {
        let part = array / comm.size();
        let root = if comm.rank() == 0 { array } else { 0 };
        match self.collective {
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast => (0, array),
            Collective::AllGather => (part, array),
            Collective::ReduceScatter => (array, part),
            Collective::Scatter => (root, part),
            Collective::Gather => (part, root),
            Collective::AllToAll => (array, array),
        }
    }

    /// The algorithm's task for a whole array of `array` elements; none for the transport's own.
    pub fn task(&self, ranks: usize, array: usize, element_bytes: usize) -> Result<Option<Task>> {
        let len = if self.in_place() { array } else { array / ranks };
        self.algorithm
            .map(|algorithm| Task::new(self.collective, algorithm, ranks, len, element_bytes, 0))
            .transpose()
    }

    /// Runs the collective, with rank 0 as the root, and with sums where it reduces. Lengths are
    /// those of [`Way::lengths`].
    #[track_caller]
    pub fn run<T: Element>(&self, comm: &Comm, give: &[T], get: &mut [T]) -> Result<()> {
        let sum = Reduce::Sum;
        if let Some(algorithm) = self.algorithm {
            return by_algorithm::run(comm, (self.collective, algorithm), (give, get), sum, 0);
        }
        match self.collective {
            Collective::AllReduce => comm.all_reduce(get, sum),
            Collective::Reduce => comm.reduce(get, sum, 0),
            Collective::Broadcast => comm.broadcast(get, 0),
            Collective::AllGather => comm.all_gather(give, get),
            Collective::ReduceScatter => comm.reduce_scatter(give, get, sum),
            Collective::Scatter => comm.scatter(give, get, 0),
            Collective::Gather => comm.gather(give, get, 0),
            Collective::AllToAll => comm.all_to_all(give, get),
        }
    }
}
