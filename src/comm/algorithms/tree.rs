//! The binomial tree: every rank that has the data helps to spread it.
//!
//! After k rounds 2^k ranks have the data, so ⌈log2 n⌉ rounds are enough instead of n-1. Distances
//! count from the root, around the ring.

use super::round::{Arrival, Member, Round, backwards};

/// In round k the first 2^k ranks send the whole buffer to the next 2^k.
pub fn broadcast(me: Member, root: usize) -> impl DoubleEndedIterator<Item = Round> {
    let from_root = me.distance_from(root);
    (0..depth(me.ranks)).filter_map(move |k| {
        let distance = 1 << k;
        if from_root < distance {
            (from_root + distance < me.ranks)
                .then(|| Round::at(k).send(me.after(distance), me.whole()))
        } else {
            (from_root < 2 * distance)
                .then(|| Round::at(k).replace(me.before(distance), me.whole()))
        }
    })
}

/// In each round the farther half of the ranks send their sums to the nearer half, which add them
/// to their own.
pub fn reduce(me: Member, root: usize) -> impl Iterator<Item = Round> {
    backwards(broadcast(me, root), depth(me.ranks), Arrival::Combine)
}

/// In each round every rank that holds parts of other ranks sends the farther half of them on.
///
/// The buffer holds the parts in the order of the ranks' distances: the root's part first.
pub fn scatter(me: Member, root: usize) -> impl DoubleEndedIterator<Item = Round> {
    let from_root = me.distance_from(root);
    let depth = depth(me.ranks);
    (0..depth).filter_map(move |k| {
        let distance = 1 << (depth - 1 - k);
        let parts = |first: usize| me.parts(first..(first + distance).min(me.ranks));
        match from_root % (2 * distance) {
            0 if from_root + distance < me.ranks => {
                Some(Round::at(k).send(me.after(distance), parts(from_root + distance)))
            }
            there if there == distance => {
                Some(Round::at(k).replace(me.before(distance), parts(from_root)))
            }
            _ => None,
        }
    })
}

/// In each round half of the ranks that hold parts send all of them to a neighbour.
pub fn gather(me: Member, root: usize) -> impl Iterator<Item = Round> {
    backwards(scatter(me, root), depth(me.ranks), Arrival::Replace)
}

/// Rounds from the root to the last rank: ⌈log2 n⌉.
fn depth(ranks: usize) -> usize {
    ranks.next_power_of_two().ilog2() as usize
}
