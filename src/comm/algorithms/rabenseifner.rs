//! Rabenseifner's all-reduce: halving, then doubling.
//!
//! A reduce-scatter by halving and an all-gather by doubling send as few bytes as the ring,
//! 2(p-1)/p of the vector, in as few rounds as two trees, 2 log2 p. Near ranks, which often share a
//! node, exchange the large halves.
//!
//! Source: R. Rabenseifner, *Optimization of collective reduction operations*, 2004.

use super::fold::Fold;
use super::recursive::{Halving, doubling, halving};
use super::round::{Member, Round};
use crate::comm::meter::even_part;
use std::ops::Range;

pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let rounds = fold.rounds();
    let elements = move |blocks: Range<usize>| {
        let start = |block| even_part(me.len, block, fold.size).start;
        start(blocks.start)..start(blocks.end)
    };
    let doubling =
        doubling(fold, Halving::near_first, elements).map(move |round| round.later(rounds));
    let inner = halving(fold, Halving::near_first, elements).chain(doubling);
    fold.around(2 * rounds, inner, Round::combine, me.whole(), me.whole())
}
