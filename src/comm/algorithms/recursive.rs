//! Recursive doubling and halving: partners at distances 1, 2, 4, …
//!
//! After k rounds each rank knows what 2^k ranks know, so log2 n rounds are enough: the fewest there can be.
//! Best for short vectors, where a round costs its latency.
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, 2005.

use super::fold::Fold;
use super::round::{Member, Round};
use std::ops::Range;

/// Recursive doubling: in each round partners exchange all they have and add it up. log2 n rounds of S.
pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let doubling = (0..fold.rounds()).map(move |k| {
        let partner = fold.rank(fold.number() ^ (1 << k));
        Round::at(k).send(partner, me.whole()).combine(partner, me.whole())
    });
    fold.around(fold.rounds(), doubling, Round::combine, me.whole(), me.whole())
}

/// Recursive halving: in each round a rank gives its partner's half away and adds to its own, which is then halved.
pub fn reduce_scatter(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let halving = (0..fold.rounds()).map(move |k| {
        let Halving { partner, kept, given } = Halving::far_first(fold, k);
        Round::at(k).send(fold.rank(partner), held(me, fold, given)).combine(fold.rank(partner), held(me, fold, kept))
    });
    fold.around(fold.rounds(), halving, Round::combine, me.whole(), pairs_part(me))
}

/// Recursive doubling: the halving backwards. In each round partners exchange all that they have gathered.
pub fn all_gather(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let doubling = (0..fold.rounds()).map(move |k| {
        let Halving { partner, kept, given } = Halving::far_first(fold, fold.rounds() - 1 - k);
        Round::at(k).send(fold.rank(partner), held(me, fold, kept)).replace(fold.rank(partner), held(me, fold, given))
    });
    fold.around(fold.rounds(), doubling, Round::replace, pairs_part(me), me.whole())
}

/// The part of the odd rank in this rank's pair.
fn pairs_part(me: Member) -> Range<usize> {
    me.part(me.rank | 1)
}

/// The parts that belong to some of the p ranks: one each, or for a pair two.
fn held(me: Member, fold: Fold, numbers: Range<usize>) -> Range<usize> {
    me.parts(fold.rank(numbers.start)..fold.rank(numbers.end))
}

/// One round of a halving, in numbers among p ranks: what two partners held together is divided between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halving {
    pub partner: usize,
    pub kept: Range<usize>,
    pub given: Range<usize>,
}

impl Halving {
    /// Distances p/2, p/4, … 1: rank i is left with block i.
    pub fn far_first(fold: Fold, k: usize) -> Halving {
        let distance = fold.size >> (k + 1);
        Halving::of(fold, k, fold.number(), distance)
    }

    /// Distances 1, 2, … p/2: the large halves go to near ranks, and rank i is left with the block whose number is i's
    /// bits in reverse order.
    pub fn near_first(fold: Fold, k: usize) -> Halving {
        let reversed = fold.number().reverse_bits().unbounded_shr(usize::BITS - fold.rounds() as u32);
        Halving::of(fold, k, reversed, 1 << k)
    }

    /// Round `k` of the way to `block`.
    fn of(fold: Fold, k: usize, block: usize, distance: usize) -> Halving {
        let half = fold.size >> (k + 1);
        let kept = block / half * half;
        let given = kept ^ half;
        Halving { partner: fold.number() ^ distance, kept: kept..kept + half, given: given..given + half }
    }
}
