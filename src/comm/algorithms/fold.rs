//! Making the number of ranks a power of two.
//!
//! Algorithms that double or halve need p = 2, 4, 8, … ranks. With n = p + x ranks, the first 2x
//! form pairs. In each pair the odd rank hands its data to the even one, sits out, and gets the
//! result at the end. This costs two more rounds, in which the pairs move the whole vector.

use super::round::{Add, Member, Round};
use std::ops::Range;

/// One rank's role once the pairs are formed.
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

    /// This rank's number among the p ranks. A rank that sits out has its partner's.
    pub fn number(self) -> usize {
        if self.me.rank < 2 * self.extra {
            self.me.rank / 2
        } else {
            self.me.rank - self.extra
        }
    }

    /// The rank that has `number` among the p ranks, or n for the number p.
    pub fn rank(self, number: usize) -> usize {
        if number < self.extra {
            2 * number
        } else {
            number + self.extra
        }
    }

    /// log2 p.
    pub fn rounds(self) -> usize {
        self.size.ilog2() as usize
    }

    /// Puts the pairs' two rounds around what the p ranks do: `rounds` rounds, numbered from 0.
    ///
    /// In the first round the odd rank sends `given`, and its partner adds it to the round with
    /// `hand_in`, [`Round::combine`] or [`Round::replace`]. In the last round `returned` overwrites
    /// the odd rank's elements.
    pub fn around(
        self,
        rounds: usize,
        inner: impl Iterator<Item = Round>,
        hand_in: Add,
        given: Range<usize>,
        returned: Range<usize>,
    ) -> impl Iterator<Item = Round> {
        let rank = self.me.rank;
        let first = Round::at(0);
        let last = Round::at(rounds + 1);
        let (first, last) = if rank >= 2 * self.extra {
            (None, None)
        } else if self.sits_out() {
            (Some(first.send(rank - 1, given)), Some(last.replace(rank - 1, returned)))
        } else {
            (Some(hand_in(first, rank + 1, given)), Some(last.send(rank + 1, returned)))
        };
        let inner = inner.take(if self.sits_out() { 0 } else { rounds });
        let shift = usize::from(self.extra > 0);
        first.into_iter().chain(inner.map(move |round| round.later(shift))).chain(last)
    }
}
