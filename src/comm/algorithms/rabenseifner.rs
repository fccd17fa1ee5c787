//! Rabenseifner's all-reduce: halving, then doubling.
//!
//! A reduce-scatter by halving and an all-gather by doubling send as few bytes as the ring,
//! 2(p-1)/p of the vector, in as few rounds as two trees, 2 log2 p. Near ranks, which often share a
//! node, exchange the large halves.
//!
//! Source: R. Rabenseifner, *Optimization of collective reduction operations*, 2004.

use super::fold::Fold;
use super::recursive::{doubling, halving, near_first};
use super::round::{Member, Round};

pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let rounds = fold.rounds();
    let in_blocks = Member { ranks: fold.size, ..me };
    let elements = move |blocks| in_blocks.parts(blocks);
    let doubling = doubling(fold, near_first, elements).map(move |round| round.later(rounds));
    let inner = halving(fold, near_first, elements).chain(doubling);
    fold.around(2 * rounds, inner, Round::combine, me.whole(), me.whole())
}
