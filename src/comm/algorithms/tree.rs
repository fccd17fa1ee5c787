//! The binomial tree: every rank that has the data helps to spread it.
//!
//! After k rounds 2^k ranks have it: ⌈log2 n⌉ rounds instead of n-1. Ranks are counted from the root on, around the ring.

use super::round::{Arrival, Member, Round, backwards};

/// In round k the first 2^k ranks send everything to the next 2^k.
pub fn broadcast(me: Member, root: usize) -> impl DoubleEndedIterator<Item = Round> {
    let place = me.place(root);
    (0..depth(me.ranks)).filter_map(move |k| {
        let distance = 1 << k;
        if place < distance {
            (place + distance < me.ranks).then(|| Round::at(k).send(me.after(distance), me.whole()))
        } else {
            (place < 2 * distance).then(|| Round::at(k).replace(me.before(distance), me.whole()))
        }
    })
}

/// In each round the farther half of the ranks hand what they have to the nearer half, which adds it up.
pub fn reduce(me: Member, root: usize) -> impl Iterator<Item = Round> {
    backwards(broadcast(me, root), depth(me.ranks), Arrival::Combine)
}

/// In each round those who have parts of others hand the farther half of them on.
///
/// Parts lie in the buffer in the order in which ranks are counted: the root's first.
pub fn scatter(me: Member, root: usize) -> impl DoubleEndedIterator<Item = Round> {
    let (place, depth) = (me.place(root), depth(me.ranks));
    (0..depth).filter_map(move |k| {
        let distance = 1 << (depth - 1 - k);
        let parts = |first: usize| me.parts(first..(first + distance).min(me.ranks));
        match place % (2 * distance) {
            0 if place + distance < me.ranks => Some(Round::at(k).send(me.after(distance), parts(place + distance))),
            there if there == distance => Some(Round::at(k).replace(me.before(distance), parts(place))),
            _ => None,
        }
    })
}

/// In each round half of those who have parts hand them all to a neighbour.
pub fn gather(me: Member, root: usize) -> impl Iterator<Item = Round> {
    backwards(scatter(me, root), depth(me.ranks), Arrival::Replace)
}

/// Rounds from the root to the last rank: ⌈log2 n⌉.
fn depth(ranks: usize) -> usize {
    ranks.next_power_of_two().ilog2() as usize
}
