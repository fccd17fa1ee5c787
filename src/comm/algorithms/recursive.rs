//! Recursive doubling and halving: partners at distances 1, 2, 4, …
//!
//! After k rounds each rank knows what 2^k ranks know, so log2 n rounds are enough, and fewer are
//! impossible. This is best for short vectors, where a round costs its latency.
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication
//! operations in MPICH*, 2005.

use super::fold::Fold;
use super::round::{Arrival, Member, Round, backwards};
use std::ops::Range;

/// Recursive doubling: in each round partners exchange the whole buffer and add it up. log2 n
/// rounds of S.
pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let doubling = (0..fold.rounds()).map(move |k| {
        let partner = fold.rank(fold.number() ^ (1 << k));
        Round::at(k).send(partner, me.whole()).combine(partner, me.whole())
    });
    fold.around(fold.rounds(), doubling, Round::combine, me.whole(), me.whole())
}

/// Recursive halving: in each round a rank sends away its partner's half of what it holds, and adds
/// to its own half.
pub fn reduce_scatter(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let halving = halving(fold, far_first, move |numbers| held(me, fold, numbers));
    fold.around(fold.rounds(), halving, Round::combine, me.whole(), pairs_part(me))
}

/// Recursive doubling, which is the halving reversed: in each round partners exchange all that they
/// have gathered.
pub fn all_gather(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let doubling = doubling(fold, far_first, move |numbers| held(me, fold, numbers));
    fold.around(fold.rounds(), doubling, Round::replace, pairs_part(me), me.whole())
}

/// The part of the odd rank in this rank's pair.
fn pairs_part(me: Member) -> Range<usize> {
    me.part(me.rank | 1)
}

/// The parts that belong to some of the p ranks: one for a single rank, two for a pair.
fn held(me: Member, fold: Fold, numbers: Range<usize>) -> Range<usize> {
    me.parts(fold.rank(numbers.start)..fold.rank(numbers.end))
}

/// The halvings in order: in round k two partners divide the p >> k blocks that they held together,
/// and each reduces the half that it keeps. Blocks have numbers from 0 to p-1, as the p ranks have.
/// `order` gives the block with which this rank ends, and the partner's distance in round k.
/// `range` turns blocks into elements.
pub fn halving(
    fold: Fold,
    order: fn(Fold, usize) -> (usize, usize),
    range: impl Fn(Range<usize>) -> Range<usize>,
) -> impl DoubleEndedIterator<Item = Round> {
    (0..fold.rounds()).map(move |k| {
        let (block, distance) = order(fold, k);
        let partner = fold.rank(fold.number() ^ distance);
        let half = fold.size >> (k + 1);
        let kept = block / half * half;
        let given = kept ^ half;
        Round::at(k)
            .send(partner, range(given..given + half))
            .combine(partner, range(kept..kept + half))
    })
}

/// The halvings reversed: each rank sends back what it kept.
pub fn doubling(
    fold: Fold,
    order: fn(Fold, usize) -> (usize, usize),
    range: impl Fn(Range<usize>) -> Range<usize>,
) -> impl Iterator<Item = Round> {
    backwards(halving(fold, order, range), fold.rounds(), Arrival::Replace)
}

/// Distances p/2, p/4, … 1: rank i ends with block i.
fn far_first(fold: Fold, k: usize) -> (usize, usize) {
    (fold.number(), fold.size >> (k + 1))
}

/// Distances 1, 2, … p/2: partners in the first rounds, which exchange the most, are near. Rank i
/// ends with the block whose number is i's bits in reverse order.
pub fn near_first(fold: Fold, k: usize) -> (usize, usize) {
    let reversed = fold.number().reverse_bits().unbounded_shr(usize::BITS - fold.rounds() as u32);
    (reversed, 1 << k)
}
