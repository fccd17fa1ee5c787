//! The cost of a collective's algorithm for its busiest rank, as a formula.

use shardlab::comm::algorithms::{Algorithm, Collective, SEGMENT, Task};

/// The largest counts of any one rank: its rounds (the steps of
/// [`CommTraffic`](shardlab::comm::CommTraffic)), and what it sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formula {
    pub rounds: u64,
    pub messages: u64,
    pub bytes: f64,
    /// Rounds and bytes in symbols: n ranks, S bytes in a vector, P in one rank's part.
    pub words: &'static str,
}

/// The formula for `task` on elements of `element_bytes`, where a short one exists.
///
/// `p` is the largest power of two up to n. If n is larger, the pairs of
/// [`Fold`](shardlab::comm::algorithms) cost two more rounds and up to one more vector.
pub fn formula(task: &Task, element_bytes: usize) -> Option<Formula> {
    let n = task.ranks as u64;
    if n == 1 {
        return Some(Formula { rounds: 0, messages: 0, bytes: 0.0, words: "nothing" });
    }
    let size = (task.len * element_bytes) as f64;
    let others = n as f64 - 1.0;
    let ranks = n as f64;
    let halvings = u64::from(n.ilog2());
    let depth = u64::from(n.next_power_of_two().ilog2());
    let p = f64::from(1u32 << halvings);
    let folded = u64::from(!n.is_power_of_two());
    let segments = task.len.div_ceil(SEGMENT).max(1) as u64;
    let (rounds, messages, bytes, words) = match (task.collective, task.algorithm) {
        (Collective::AllReduce, Algorithm::Naive) => {
            (2 * (n - 1), n - 1, others * size, "2(n-1) rounds of S")
        }
        (Collective::AllReduce, Algorithm::Ring) => {
            (2 * (n - 1), 2 * (n - 1), 2.0 * others / ranks * size, "2(n-1) rounds of S/n")
        }
        (Collective::AllReduce, Algorithm::RecursiveDoubling) => (
            halvings + 2 * folded,
            halvings + folded,
            (halvings + folded) as f64 * size,
            if folded == 0 {
                "log2 n rounds of S"
            } else {
                "log2 p + 2 rounds of S"
            },
        ),
        (Collective::AllReduce, Algorithm::Rabenseifner) => (
            2 * (halvings + folded),
            2 * halvings + folded,
            (2.0 * (p - 1.0) / p + folded as f64) * size,
            if folded == 0 {
                "2 log2 n rounds of S/2, .."
            } else {
                "2 log2 p + 2 rounds of S, .."
            },
        ),
        (Collective::Broadcast, Algorithm::Flat) => {
            (n - 1, n - 1, others * size, "n-1 rounds of S")
        }
        (Collective::Reduce, Algorithm::Flat) => (n - 1, 1, size, "n-1 rounds of S"),
        (Collective::Broadcast, Algorithm::Tree) => {
            (depth, depth, depth as f64 * size, "ceil(log2 n) rounds of S")
        }
        (Collective::Reduce, Algorithm::Tree) => (depth, 1, size, "ceil(log2 n) rounds of S"),
        // A rank in between receives the first segment before it has one to send.
        (Collective::Broadcast | Collective::Reduce, Algorithm::Chain) => {
            let words = if n > 2 {
                "m+1 rounds of S/m, in m segments"
            } else {
                "m rounds of S/m, in m segments"
            };
            (segments + u64::from(n > 2), segments, size, words)
        }
        (Collective::AllGather | Collective::ReduceScatter, Algorithm::Ring) => {
            (n - 1, n - 1, others * size, "n-1 rounds of P")
        }
        (Collective::AllGather, Algorithm::RecursiveDoubling) if folded == 0 => {
            (halvings, halvings, others * size, "log2 n rounds of P, 2P, 4P, ..")
        }
        (Collective::ReduceScatter, Algorithm::RecursiveHalving) if folded == 0 => {
            (halvings, halvings, others * size, "log2 n rounds of .., 4P, 2P, P")
        }
        (Collective::Scatter, Algorithm::Flat) => (n - 1, n - 1, others * size, "n-1 rounds of P"),
        (Collective::Gather, Algorithm::Flat) => (n - 1, 1, size, "n-1 rounds of P"),
        (Collective::Scatter, Algorithm::Tree) => {
            (depth, depth, others * size, "ceil(log2 n) rounds of .., 4P, 2P, P")
        }
        (Collective::Gather, Algorithm::Tree) => {
            // The last to arrive at the root: half of the parts, or what there is of that half;
            // else the half of the first.
            let half = (1 << depth) / 2;
            let quarter = ((1 << depth) / 4) as f64;
            (
                depth,
                1,
                ((n - half) as f64).max(quarter) * size,
                "ceil(log2 n) rounds of P, 2P, 4P, ..",
            )
        }
        (Collective::AllToAll, Algorithm::Pairwise) => {
            (n - 1, n - 1, others * size, "n-1 rounds of P")
        }
        _ => return None,
    };
    Some(Formula { rounds, messages, bytes, words })
}
