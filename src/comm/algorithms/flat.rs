//! Flat: the root exchanges data with every other rank itself, one rank after the other.
//!
//! This is the simplest way, and it uses the root's link alone: n-1 messages, while all other ranks
//! wait.

use super::round::{Add, Member, Round};
use std::ops::Range;

/// The root sends the whole buffer to each rank.
pub fn broadcast(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root, Round::send, Round::replace, move |_| me.whole())
}

/// The root receives each rank's whole buffer and adds it to its own.
pub fn reduce(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root, Round::combine, Round::send, move |_| me.whole())
}

/// The root sends each rank its part. The buffer holds the root's part first, then the others in
/// the order of turns.
pub fn scatter(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root, Round::send, Round::replace, move |turn| me.part(turn))
}

/// The root receives each rank's part. The buffer holds the root's part first, then the others in
/// the order of turns.
pub fn gather(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root, Round::replace, Round::send, move |turn| me.part(turn))
}

/// The naive all-reduce: a reduce to rank 0, which adds in rank order, then a broadcast.
pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    reduce(me, 0).chain(broadcast(me, 0).map(move |round| round.later(me.ranks - 1)))
}

/// Turn k belongs to the rank at distance k from the root. The root takes part in every turn, any
/// other rank in its own.
fn turns(
    me: Member,
    root: usize,
    on_root: Add,
    elsewhere: Add,
    range: impl Fn(usize) -> Range<usize>,
) -> impl Iterator<Item = Round> {
    let distance = me.distance_from(root);
    let turns = if distance == 0 {
        1..me.ranks
    } else {
        distance..distance + 1
    };
    turns.map(move |turn| {
        let (add, peer) = if distance == 0 {
            (on_root, me.after(turn))
        } else {
            (elsewhere, root)
        };
        add(Round::at(turn - 1), peer, range(turn))
    })
}
