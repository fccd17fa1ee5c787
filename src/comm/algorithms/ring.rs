//! The ring: everyone passes to the right, one part in each round.
//!
//! All links are busy all the time, each with one part of n, so that for long vectors nothing is faster:
//! 2(n-1)/n of the vector leaves each rank, however many there are. But a part makes 2(n-1) hops, one after the other.
//!
//! Source: P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, 2009.

use super::round::{Member, Round};

// ANCHOR: ring
/// A part sets out from the rank after its owner, and each rank on its way adds its own: it is complete at its owner.
pub fn reduce_scatter(me: Member) -> impl Iterator<Item = Round> {
    (0..me.ranks - 1).map(move |k| {
        let (going, coming) = (me.part(me.before(k + 1)), me.part(me.before(k + 2)));
        Round::at(k).send(me.after(1), going).combine(me.before(1), coming)
    })
}

/// Each rank passes on what came in the round before, its own part first.
pub fn all_gather(me: Member) -> impl Iterator<Item = Round> {
    (0..me.ranks - 1).map(move |k| {
        let (going, coming) = (me.part(me.before(k)), me.part(me.before(k + 1)));
        Round::at(k).send(me.after(1), going).replace(me.before(1), coming)
    })
}

/// Twice around: the first time the sums grow, the second time everyone gets them.
pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    reduce_scatter(me).chain(all_gather(me).map(move |round| round.later(me.ranks - 1)))
}
// ANCHOR_END: ring
