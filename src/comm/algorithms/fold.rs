//! Making the number of ranks a power of two.
//!
//! Algorithms that double or halve need p = 2, 4, 8, … ranks. Of n = p + x ranks, the first 2x form pairs: in each, the odd
//! rank hands its data to the even one, sits out, and gets the result at the end. That is two rounds more, and the pairs
//! move the whole vector twice.

use super::round::{Member, Round};
use std::ops::Range;

/// Where one rank stands once the pairs are formed.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    me: Member,
    /// x: the ranks that sit out.
    extra: usize,
    /// p: the ranks that go on, a power of two.
    pub size: usize,
}

impl Fold {
    pub fn new(me: Member) -> Fold {
        let size = 1 << me.ranks.ilog2();
        Fold { me, size, extra: me.ranks - size }
    }

    fn sits_out(self) -> bool {
        self.me.rank < 2 * self.extra && self.me.rank % 2 == 1
    }

    /// This rank's number among the p, or its partner's.
    pub fn number(self) -> usize {
        if self.me.rank < 2 * self.extra { self.me.rank / 2 } else { self.me.rank - self.extra }
    }

    /// The rank that has `number` among the p; for p itself, n.
    pub fn rank(self, number: usize) -> usize {
        if number < self.extra { 2 * number } else { number + self.extra }
    }

    /// log2 p.
    pub fn rounds(self) -> usize {
        self.size.ilog2() as usize
    }

    /// Puts the pairs' two rounds around what the p ranks do, which is numbered from 0: `rounds` rounds in all.
    ///
    /// `hand_in` makes the odd ranks' first round an incoming one on its partner: [`Round::combine`] or [`Round::replace`] of
    /// `given`; in the end `returned` replaces what the odd rank has.
    pub fn around(
        self,
        rounds: usize,
        inner: impl Iterator<Item = Round>,
        hand_in: fn(Round, usize, Range<usize>) -> Round,
        given: Range<usize>,
        returned: Range<usize>,
    ) -> impl Iterator<Item = Round> {
        let rank = self.me.rank;
        let (first, last) = if rank >= 2 * self.extra {
            (None, None)
        } else if self.sits_out() {
            let last = Round::at(rounds + 1).replace(rank - 1, returned);
            (Some(Round::at(0).send(rank - 1, given)), Some(last))
        } else {
            (Some(hand_in(Round::at(0), rank + 1, given)), Some(Round::at(rounds + 1).send(rank + 1, returned)))
        };
        let inner = inner.take(if self.sits_out() { 0 } else { rounds });
        let shift = usize::from(self.extra > 0);
        first.into_iter().chain(inner.map(move |round| round.later(shift))).chain(last)
    }
}
