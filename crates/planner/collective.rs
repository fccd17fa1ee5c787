//! The time of a collective on nodes of devices.
//!
//! With n ranks, an array of S bytes and a latency of α per hop, a ring takes (n-1)α and moves
//! (n-1)/n·S over the slowest link of its way. On thousands of ranks its latency is most of it.
//! Recursive doubling (an all-gather) and halving (a reduce-scatter) take log₂ n hops for the same
//! bytes. Between nodes they work on one rank of each node, and rings on each node do the rest. Of
//! both ways the faster one counts, where libraries have both. [`Link`] has both formulas; here is
//! which link a group has on a cluster.

use shapes::link::Link;
use shapes::network::Network;

/// Ranks that communicate with each other, and how many of them are on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankGroup {
    pub size: usize,
    pub per_node: usize,
}

impl RankGroup {
    /// The ranks of an axis of `devices`: `size` of them, each `stride` ranks from the next.
    pub fn of(network: &Network, devices: usize, size: usize, stride: usize) -> RankGroup {
        let node = network.ranks_per_node;
        let span = size * stride;
        // Of groups that are smaller than a node and do not divide it, some lie on two nodes.
        let per_node = if span < node && leaves_node(network, devices, span) {
            gcd(node, span) / stride
        } else {
            node / stride
        };
        RankGroup { size, per_node: per_node.clamp(1, size.max(1)) }
    }

    /// Its nodes, the last of which may not be full.
    fn nodes(&self) -> usize {
        self.size.div_ceil(self.per_node)
    }
}

/// Whether any group of `span` neighbours, of all `devices`, is on more than one node.
pub fn leaves_node(network: &Network, devices: usize, span: usize) -> bool {
    let node = network.ranks_per_node;
    devices > node && !node.is_multiple_of(span)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Bytes per second that each rank of the group sends in a ring. If it leaves its node, it shares
/// the node's cards with the groups of the other ranks there.
pub fn bandwidth(network: &Network, group: RankGroup) -> f64 {
    let node = network.ranks_per_node;
    let within = if network.direct && group.per_node > 1 && group.per_node < node {
        network.within.bandwidth * (group.per_node - 1) as f64 / (node - 1) as f64
    } else {
        network.within.bandwidth
    };
    if group.nodes() == 1 {
        return network.efficiency * within;
    }
    let groups = (node / group.per_node).max(1) as f64;
    let cards = (network.cards as f64 / groups).min(network.rings as f64);
    network.efficiency * within.min(cards * network.between.bandwidth)
}

/// Seconds of a ring that goes through all ranks of a node before it leaves the node.
fn ring(network: &Network, group: RankGroup, bytes: f64) -> f64 {
    let hops = group.size - 1;
    let far = if group.nodes() == 1 { 0 } else { group.nodes().min(hops) };
    let near = (hops - far) as f64 * network.within.latency;
    let link = Link {
        latency: (near + far as f64 * network.between.latency) / hops as f64,
        bandwidth: bandwidth(network, group),
    };
    link.ring_seconds(group.size, bytes)
}

/// Seconds of recursive doubling among one rank of each node, for all ranks of a node at once, and
/// of rings on the nodes.
fn doubling(network: &Network, group: RankGroup, bytes: f64) -> f64 {
    let one_each = RankGroup { size: group.nodes(), per_node: 1 };
    let link = Link { bandwidth: bandwidth(network, one_each), ..network.between };
    // Each rank of a node sends its part of the array through its share of the node's cards.
    let far = link.doubling_seconds(group.nodes(), bytes / group.per_node as f64);
    let node = RankGroup { size: group.per_node, per_node: group.per_node };
    far + if node.size > 1 { ring(network, node, bytes) } else { 0.0 }
}

/// Seconds of a reduce-scatter or an all-gather of an array of `bytes` in `calls` equal parts. An
/// all-reduce is as long as both, and `trees` says that it may take other ways than a ring.
///
/// NCCL has trees for all-reduces of any group. For the others it has another way than rings only
/// if a group has one rank on each node (`PAT`; `src/graph/tuning.cc` of its version 2.30).
pub fn gathers(network: &Network, group: RankGroup, bytes: f64, calls: f64, trees: bool) -> f64 {
    if group.size < 2 {
        return 0.0;
    }
    let part = bytes / calls;
    let mut each = ring(network, group, part);
    if trees && group.nodes() > 1 {
        each = each.min(doubling(network, group, part));
    }
    calls * each
}

/// Seconds of the slowest message between stages that are `stride` ranks apart, on `devices` ranks
/// together. If the pipeline leaves its node, the ranks of one stage send at the same time, and
/// share the node's cards.
pub fn sends(network: &Network, bytes: f64, stride: usize, devices: usize) -> f64 {
    let node = network.ranks_per_node;
    let (link, shared) = if devices <= node {
        // One of a rank's links to all others, if it has one to each.
        let links = if network.direct { node - 1 } else { 1 };
        let link = Link {
            bandwidth: network.within.bandwidth / links as f64,
            ..network.within
        };
        (link, 1.0)
    } else {
        let shared = stride.min(node) as f64 / network.cards as f64;
        (network.between, shared.max(1.0))
    };
    let reached = Link { bandwidth: network.efficiency * link.bandwidth, ..link };
    reached.message_seconds(bytes * shared)
}

/// The tokens per rank and step from which on an all-reduce of all gradients, `bytes` for each,
/// hides behind the backward pass: t = g(n-1)F / (2nB).
///
/// The backward pass takes 4 FLOPs for each parameter and token, at `flops` FLOP/s; the all-reduce
/// moves 2(n-1)/n · g bytes for each parameter, at `bandwidth` B/s. Both grow with the number of
/// parameters, which cancels.
pub fn tokens_that_hide(bytes: f64, ranks: usize, flops: f64, bandwidth: f64) -> f64 {
    let n = ranks as f64;
    bytes * (n - 1.0) * flops / (2.0 * n * bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network;

    #[test]
    fn groups_share_the_cards_of_a_node() {
        let dgx = network("dgx-a100").unwrap();
        let gb = |size, stride| {
            bandwidth(&dgx, RankGroup::of(&dgx, 512, size, stride)) / 1e9 / dgx.efficiency
        };
        assert_eq!(gb(8, 1), 300.0); // on one node
        assert_eq!(gb(64, 1), 200.0); // whole nodes: all eight cards
        assert_eq!(gb(64, 8), 25.0); // one rank of each node: its own card
        assert_eq!(gb(64, 4), 50.0);
        let flat = Network { rings: 1, ..dgx.clone() };
        let group = RankGroup::of(&flat, 64, 64, 1);
        assert_eq!(bandwidth(&flat, group) / flat.efficiency, 25e9);
    }

    /// 2,048 ranks, one on each node: a ring has 2,047 hops.
    #[test]
    fn many_ranks_do_not_wait_for_a_ring() {
        let dgx = network("dgx-h100").unwrap();
        let group = RankGroup::of(&dgx, 16_384, 2048, 8);
        let rings = gathers(&dgx, group, 1e6, 1.0, false);
        let best = gathers(&dgx, group, 1e6, 1.0, true);
        assert!(rings > 0.028 && best < 0.001, "{rings}, {best}");
    }

    /// Links from each GPU to each other one: 48 GB/s were measured between two of eight, and 313
    /// among all eight (in 448).
    #[test]
    fn direct_links_are_few_between_few() {
        let network = network("mi300x").unwrap();
        let gb = |size| bandwidth(&network, RankGroup::of(&network, 8, size, 1)) / 1e9;
        assert!((gb(2) / 47.7 - 1.0).abs() < 0.1, "{}", gb(2));
        assert!((gb(8) / 312.9 - 1.0).abs() < 0.15, "{}", gb(8));
    }

    /// Nodes of 12, as Aurora's: eight ranks do not divide them, so the second eight lie on two.
    /// Four do.
    #[test]
    fn some_groups_lie_on_two_nodes() {
        let aurora = network("aurora").unwrap();
        let per_node = |devices, size| RankGroup::of(&aurora, devices, size, 1).per_node;
        assert_eq!([per_node(24, 8), per_node(24, 4), per_node(24, 24)], [4, 4, 12]);
        assert_eq!([per_node(24, 12), per_node(8, 8)], [12, 8]);
        let group = RankGroup::of(&aurora, 24, 8, 1);
        assert_eq!(group.nodes(), 2);
        assert!(leaves_node(&aurora, 24, 8) && !leaves_node(&aurora, 24, 4));
        assert!(!leaves_node(&aurora, 8, 8) && leaves_node(&aurora, 24, 24));
        assert!(bandwidth(&aurora, group) <= aurora.efficiency * aurora.within.bandwidth);
    }

    /// A pair of eight MI300X has one of seven links, also for messages between stages.
    #[test]
    fn a_message_takes_one_link() {
        let network = network("mi300x").unwrap();
        let seconds = sends(&network, 1e9, 1, 8) - network.within.latency;
        assert!((seconds * network.efficiency * 64e9 / 1e9 - 1.0).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn the_models_size_cancels() {
        let ranks = 64;
        let flops = 4e14;
        let bandwidth = 5e10;
        let parameters = 7e9;
        let tokens = tokens_that_hide(2.0, ranks, flops, bandwidth);
        let backward = 4.0 * parameters * tokens / flops;
        let n = ranks as f64;
        let all_reduce = 2.0 * (n - 1.0) / n * 2.0 * parameters / bandwidth;
        assert!((backward - all_reduce).abs() < 1e-12 * backward);
        assert!((tokens - 7875.0).abs() < 1e-9);
    }
}
