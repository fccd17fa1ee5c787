//! Flat: the root deals with every other rank itself, one after the other.
//!
//! The simplest way, and the root's link is all that is ever busy: n-1 messages, while everyone else waits.

use super::round::{Member, Round};

/// The root sends everything to each.
pub fn broadcast(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root).map(move |turn| match turn.other {
        Some(other) => turn.round().send(other, me.whole()),
        None => turn.round().replace(root, me.whole()),
    })
}

/// The root receives everything from each and adds it up.
pub fn reduce(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root).map(move |turn| match turn.other {
        Some(other) => turn.round().combine(other, me.whole()),
        None => turn.round().send(root, me.whole()),
    })
}

/// The root sends each its part. Parts lie in the buffer in the order of turns, the root's first.
pub fn scatter(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root).map(move |turn| match turn.other {
        Some(other) => turn.round().send(other, me.part(turn.number)),
        None => turn.round().replace(root, me.part(turn.number)),
    })
}

/// The root receives each one's part, in the same order.
pub fn gather(me: Member, root: usize) -> impl Iterator<Item = Round> {
    turns(me, root).map(move |turn| match turn.other {
        Some(other) => turn.round().replace(other, me.part(turn.number)),
        None => turn.round().send(root, me.part(turn.number)),
    })
}

/// The naive all-reduce: reduce to rank 0, which adds in rank order, then broadcast.
pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    reduce(me, 0).chain(broadcast(me, 0).map(move |round| round.later(me.ranks - 1)))
}

/// One rank's turn with the root.
struct Turn {
    /// From 1, for the rank after the root, on.
    number: usize,
    /// On the root, whose turn it is.
    other: Option<usize>,
}

impl Turn {
    fn round(&self) -> Round {
        Round::at(self.number - 1)
    }
}

/// The turns that this rank takes part in: on the root all, else its own.
fn turns(me: Member, root: usize) -> impl Iterator<Item = Turn> {
    let place = me.place(root);
    let numbers = if place == 0 { 1..me.ranks } else { place..place + 1 };
    numbers.map(move |number| Turn { number, other: (place == 0).then(|| me.after(number)) })
}
