//! The ring: in each round every rank passes one part to its right neighbour.
//!
//! All links are busy all the time, each with one of n parts. Each rank sends 2(n-1)/n of the
//! vector, however many ranks there are, so no algorithm is faster for long vectors. But a part
//! makes 2(n-1) hops, one after the other.
//!
//! Source: P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of
//! workstations*, 2009.

use super::round::{Member, Round};

// ANCHOR: ring
/// Each part starts at the rank after its owner. Every rank that it passes adds its own numbers,
/// and the owner adds the last.
pub fn reduce_scatter(me: Member) -> impl Iterator<Item = Round> {
    (0..me.ranks - 1).map(move |k| {
        let going = me.part(me.before(k + 1));
        let coming = me.part(me.before(k + 2));
        Round::at(k).send(me.after(1), going).combine(me.before(1), coming)
    })
}

/// Each rank sends its own part first, and then in each round the part that it received in the
/// round before.
pub fn all_gather(me: Member) -> impl Iterator<Item = Round> {
    (0..me.ranks - 1).map(move |k| {
        let going = me.part(me.before(k));
        let coming = me.part(me.before(k + 1));
        Round::at(k).send(me.after(1), going).replace(me.before(1), coming)
    })
}

/// Twice around the ring: the sums grow the first time, and the second time every rank gets them.
pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    reduce_scatter(me).chain(all_gather(me).map(move |round| round.later(me.ranks - 1)))
}
// ANCHOR_END: ring
