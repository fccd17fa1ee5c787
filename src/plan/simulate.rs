//! The simulator: the time of a collective on a network that is not here.
//!
//! It follows the same rounds that an algorithm runs with real data. A message leaves when its
//! sender has reached the round and its link is free. A rank goes on when the message that it waits
//! for has arrived. So a rank is a few numbers, and 100,000 ranks are cheap if each takes a few
//! rounds. In algorithms with many rounds, all nodes do the same:
//!
//! - In a ring or a pairwise exchange, one node represents all nodes.
//! - Along a chain, each node adds the same delay, and the first nodes stand for the rest.

use super::Network;
use crate::comm::algorithms::{Algorithm, Task};
use std::collections::BTreeMap;

/// Seconds from the start on all ranks until the last rank is done, with elements of
/// `element_bytes`.
///
/// If one node represents all, a last node that is not full counts as full.
pub fn simulate(task: &Task, element_bytes: usize, network: &Network) -> f64 {
    let node = network.ranks_per_node.min(task.ranks);
    match task.algorithm {
        Algorithm::Ring | Algorithm::Pairwise => {
            Run::new(task, element_bytes, network, node).seconds()
        }
        Algorithm::Chain if task.ranks > LONG * node => {
            // The same rest of a last node in all three.
            let rest = task.ranks % node;
            let chain = |nodes: usize| {
                let part = Task { ranks: nodes * node + rest, root: 0, ..*task };
                Run::new(&part, element_bytes, network, part.ranks).seconds()
            };
            let half = chain(LONG / 2);
            let whole = chain(LONG);
            whole + (whole - half) * ((task.ranks / node - LONG) as f64 / (LONG / 2) as f64)
        }
        _ => Run::new(task, element_bytes, network, task.ranks).seconds(),
    }
}

/// Nodes of a chain after which each further node adds the same delay.
const LONG: usize = 8;

struct Run<'a> {
    task: &'a Task,
    element_bytes: usize,
    network: &'a Network,
    /// The ranks that are followed: all ranks, or those of the first node.
    followed: usize,
    /// For each rank, the time at which it has reached its next round.
    now: Vec<f64>,
    /// For each rank, the time at which its link is free again, to send and to receive.
    free_out: Vec<f64>,
    free_in: Vec<f64>,
    /// For each rank, the last interval in which its link to receive was idle.
    idle_in: Vec<(f64, f64)>,
}

impl Run<'_> {
    fn new<'a>(
        task: &'a Task,
        element_bytes: usize,
        network: &'a Network,
        followed: usize,
    ) -> Run<'a> {
        let zero = || vec![0.0; followed];
        let idle_in = vec![(0.0, 0.0); followed];
        Run {
            task,
            element_bytes,
            network,
            followed,
            now: zero(),
            free_out: zero(),
            free_in: zero(),
            idle_in,
        }
    }

    fn seconds(mut self) -> f64 {
        let mut rounds: Vec<_> =
            (0..self.followed).map(|rank| self.task.rounds(rank).peekable()).collect();
        // The ranks that act in each round, from the next one on.
        let mut calendar: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (rank, rounds) in rounds.iter_mut().enumerate() {
            if let Some(round) = rounds.peek() {
                calendar.entry(round.number).or_default().push(rank);
            }
        }
        let mut leaving = vec![0; self.followed.div_ceil(self.network.ranks_per_node)];
        let mut messages = Vec::new();
        let mut receivers = Vec::new();
        while let Some((_, acting)) = calendar.pop_first() {
            messages.clear();
            receivers.clear();
            for rank in acting {
                let round = rounds[rank].next().expect("it was seen by peek");
                if let Some(send) = round.send {
                    let (to, same_node) = self.way(rank, send.to);
                    leaving[self.node(rank)] += usize::from(!same_node);
                    messages.push((
                        rank,
                        to,
                        same_node,
                        (send.range.len() * self.element_bytes) as f64,
                    ));
                }
                if round.recv.is_some() {
                    receivers.push(rank);
                }
                if let Some(next) = rounds[rank].peek() {
                    calendar.entry(next.number).or_default().push(rank);
                }
            }
            for &(from, to, same_node, bytes) in &messages {
                let (busy, after) =
                    self.network.message(same_node, bytes, leaving[self.node(from)]);
                self.free_out[from] = self.free_out[from].max(self.now[from]) + busy;
                self.arrive(to, busy, self.free_out[from] + after);
            }
            for &(from, ..) in &messages {
                leaving[self.node(from)] = 0;
            }
            for &rank in &receivers {
                self.now[rank] = self.now[rank].max(self.free_in[rank]);
            }
        }
        self.now.into_iter().fold(0.0, f64::max)
    }

    /// A message arrives that keeps `to`'s link busy for `busy` seconds, at `earliest` or when the
    /// link is free.
    fn arrive(&mut self, to: usize, busy: f64, earliest: f64) {
        let free = self.free_in[to];
        let (start, end) = self.idle_in[to];
        let arrival = earliest.max(start + busy);
        if arrival - busy < end {
            // It is of a later round than what came in last, but there before that, which it may
            // keep waiting.
            self.idle_in[to].0 = arrival.min(end);
            self.free_in[to] += (arrival - end).max(0.0);
        } else {
            self.free_in[to] = earliest.max(free + busy);
            self.idle_in[to] = (free, self.free_in[to] - busy);
        }
    }

    fn node(&self, rank: usize) -> usize {
        rank / self.network.ranks_per_node
    }

    /// The followed rank that represents `to`, and whether it is on `from`'s node.
    fn way(&self, from: usize, to: usize) -> (usize, bool) {
        if self.followed == self.task.ranks {
            return (to, self.node(from) == self.node(to));
        }
        // All nodes are like the first: what counts is how far, in which direction.
        let ranks = self.task.ranks as isize;
        let node = self.followed as isize;
        let mut distance = (to as isize - from as isize).rem_euclid(ranks);
        if distance > ranks / 2 {
            distance -= ranks;
        }
        let there = from as isize + distance;
        (there.rem_euclid(node) as usize, (0..node).contains(&there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Link;
    use crate::comm::algorithms::Collective;

    const LINK: Link = Link { latency: 3.0, bandwidth: 8.0 };

    fn task(collective: Collective, algorithm: Algorithm, ranks: usize, len: usize) -> Task {
        Task::new(collective, algorithm, ranks, len, 4, 0).unwrap()
    }

    #[track_caller]
    fn close(is: f64, expected: f64, within: f64) {
        assert!((is / expected - 1.0).abs() <= within, "{is} is not {expected}");
    }

    #[test]
    fn on_equal_links_it_is_what_the_textbook_says() {
        for n in [2usize, 8, 64] {
            let ranks = n as f64;
            let depth = f64::from(n.ilog2());
            let len = 5 * n;
            // Seconds of the vector, and of one rank's part if all parts make the vector.
            let a = LINK.latency;
            let s = (4 * len) as f64 / LINK.bandwidth;
            let p = (4 * 5) as f64 / LINK.bandwidth;
            for (collective, algorithm, len, expected) in [
                (Collective::AllReduce, Algorithm::Naive, len, 2.0 * a + 2.0 * (ranks - 1.0) * s),
                (Collective::AllReduce, Algorithm::Ring, len, 2.0 * (ranks - 1.0) * (a + p)),
                (Collective::AllReduce, Algorithm::RecursiveDoubling, len, depth * (a + s)),
                (
                    Collective::AllReduce,
                    Algorithm::Rabenseifner,
                    len,
                    2.0 * depth * a + 2.0 * (ranks - 1.0) * p,
                ),
                (Collective::Reduce, Algorithm::Flat, len, a + (ranks - 1.0) * s),
                (Collective::Broadcast, Algorithm::Flat, len, a + (ranks - 1.0) * s),
                (Collective::Reduce, Algorithm::Tree, len, depth * (a + s)),
                (Collective::Broadcast, Algorithm::Tree, len, depth * (a + s)),
                (Collective::AllGather, Algorithm::Ring, 5, (ranks - 1.0) * (a + p)),
                (
                    Collective::AllGather,
                    Algorithm::RecursiveDoubling,
                    5,
                    depth * a + (ranks - 1.0) * p,
                ),
                (Collective::ReduceScatter, Algorithm::Ring, 5, (ranks - 1.0) * (a + p)),
                (
                    Collective::ReduceScatter,
                    Algorithm::RecursiveHalving,
                    5,
                    depth * a + (ranks - 1.0) * p,
                ),
                (Collective::Scatter, Algorithm::Flat, 5, a + (ranks - 1.0) * p),
                (Collective::Gather, Algorithm::Flat, 5, a + (ranks - 1.0) * p),
                (Collective::Scatter, Algorithm::Tree, 5, depth * a + (ranks - 1.0) * p),
                (Collective::Gather, Algorithm::Tree, 5, depth * a + (ranks - 1.0) * p),
                (Collective::AllToAll, Algorithm::Pairwise, 5, (ranks - 1.0) * (a + p)),
            ] {
                let task = task(collective, algorithm, n, len);
                let is = simulate(&task, 4, &Network::uniform(LINK));
                assert!((is / expected - 1.0).abs() < 1e-12, "{task:?}: {is} is not {expected}");
            }
        }
    }

    #[test]
    fn a_chain_is_a_pipeline() {
        let segments = 6;
        let segment = (4 * crate::comm::algorithms::SEGMENT) as f64 / LINK.bandwidth;
        for n in [2usize, 3, 9, 100] {
            let chain = |collective| {
                task(collective, Algorithm::Chain, n, segments * crate::comm::algorithms::SEGMENT)
            };
            let expected =
                (n - 1) as f64 * (LINK.latency + segment) + (segments - 1) as f64 * segment;
            for collective in [Collective::Broadcast, Collective::Reduce] {
                close(simulate(&chain(collective), 4, &Network::uniform(LINK)), expected, 1e-12);
            }
        }
    }

    /// The same without short cuts.
    fn all_ranks(task: &Task, network: &Network) -> f64 {
        Run::new(task, 4, network, task.ranks).seconds()
    }

    #[test]
    fn what_is_followed_once_stands_for_all() {
        let [_, polaris, aurora, ethernet] = Network::presets();
        for network in [polaris, aurora, ethernet] {
            for ranks in [12, 48, 144] {
                for (collective, algorithm) in [
                    (Collective::AllReduce, Algorithm::Ring),
                    (Collective::AllGather, Algorithm::Ring),
                    (Collective::ReduceScatter, Algorithm::Ring),
                    (Collective::AllToAll, Algorithm::Pairwise),
                    (Collective::Broadcast, Algorithm::Chain),
                    (Collective::Reduce, Algorithm::Chain),
                ] {
                    for len in [ranks, 1000 * ranks, 100_000 * ranks] {
                        let task = task(
                            collective,
                            algorithm,
                            ranks,
                            if algorithm == Algorithm::Chain { 9 * len } else { len },
                        );
                        let short = simulate(&task, 4, &network);
                        let full = all_ranks(&task, &network);
                        // The last of a chain's segments is shorter by an element.
                        assert!(
                            (short / full - 1.0).abs() < 1e-4,
                            "{task:?} on {}: {short}, {full}",
                            network.name
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_last_node_that_is_not_full_makes_little_difference() {
        let [_, polaris, aurora, _] = Network::presets();
        for (network, ranks) in [(&polaris, 70), (&polaris, 71), (&aurora, 121), (&aurora, 131)] {
            for len in [ranks, 100_000 * ranks] {
                for task in [
                    task(Collective::AllReduce, Algorithm::Ring, ranks, len),
                    task(Collective::AllToAll, Algorithm::Pairwise, ranks, len / ranks),
                ] {
                    close(simulate(&task, 4, network), all_ranks(&task, network), 0.05);
                }
            }
        }
    }

    #[test]
    fn a_busy_root_pays_for_every_message() {
        let [.., ethernet] = Network::presets();
        let task = |algorithm| task(Collective::Broadcast, algorithm, 100, 1250);
        let one = 24e-6 + 5000.0 / 1.25e9;
        close(simulate(&task(Algorithm::Flat), 4, &ethernet), 99.0 * one, 1e-12);
        close(simulate(&task(Algorithm::Tree), 4, &ethernet), 7.0 * one, 1e-12);
    }

    #[test]
    fn what_is_there_early_comes_in_while_the_root_waits_for_another() {
        let gather = task(Collective::Gather, Algorithm::Tree, 5, 5);
        let a = LINK.latency;
        let p = 20.0 / LINK.bandwidth;
        // Rank 3 sends to 2, which sends both parts on to 0; 1 and 4 have sent theirs to 0
        // meanwhile.
        let last = (a + p) + (a + 2.0 * p);
        let all = a + 4.0 * p;
        assert!(last > all);
        close(simulate(&gather, 4, &Network::uniform(LINK)), last, 1e-12);
        // A link so slow that the root's is never idle, once the first part is there.
        let slow = Link { latency: 1.0, bandwidth: 8.0 };
        close(simulate(&gather, 4, &Network::uniform(slow)), 1.0 + 4.0 * p, 1e-12);
    }

    #[test]
    fn ranks_of_a_node_share_its_cards() {
        let [_, polaris, ..] = Network::presets();
        // On two nodes the first two exchanges stay there; in the third, four ranks share two
        // cards.
        let task = task(Collective::AllReduce, Algorithm::RecursiveDoubling, 8, 1 << 20);
        let bytes = f64::from(4u32 << 20);
        let expected = 2.0 * (3.4e-6 + bytes / 100e9) + 14e-6 + 2.0 * bytes / 25e9;
        close(simulate(&task, 4, &polaris), expected, 1e-12);
    }

    #[test]
    fn a_hundred_thousand_ranks_are_within_reach() {
        let [_, _, aurora, _] = Network::presets();
        let start = std::time::Instant::now();
        for collective in Collective::ALL {
            for &algorithm in collective.algorithms() {
                let seconds = simulate(&task(collective, algorithm, 100_000, 1 << 10), 4, &aurora);
                assert!(
                    seconds > 17.0 * aurora.within.latency,
                    "{collective:?} {algorithm:?}: {seconds}"
                );
            }
        }
        // Only a simulation of every rank's every round reaches this bound.
        assert!(start.elapsed().as_secs() < 100);
    }
}
