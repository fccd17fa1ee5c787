//! Rabenseifner's all-reduce: halving, then doubling.
//!
//! A reduce-scatter by halving and an all-gather by doubling: the bytes of the ring, 2(p-1)/p of the vector, in the rounds
//! of a tree, 2 log2 p. The large halves are exchanged with near ranks, which are often on the same node.
//!
//! Source: R. Rabenseifner, *Optimization of collective reduction operations*, 2004.

use super::fold::Fold;
use super::recursive::Halving;
use super::round::{Member, Round};
use crate::comm::meter::even_part;
use std::ops::Range;

pub fn all_reduce(me: Member) -> impl Iterator<Item = Round> {
    let fold = Fold::new(me);
    let rounds = fold.rounds();
    let blocks = move |blocks: Range<usize>| {
        let start = |block| even_part(me.len, block, fold.size).start;
        start(blocks.start)..start(blocks.end)
    };
    let halving = (0..rounds).map(move |k| {
        let Halving { partner, kept, given } = Halving::near_first(fold, k);
        Round::at(k).send(fold.rank(partner), blocks(given)).combine(fold.rank(partner), blocks(kept))
    });
    let doubling = (0..rounds).map(move |k| {
        let Halving { partner, kept, given } = Halving::near_first(fold, rounds - 1 - k);
        Round::at(rounds + k).send(fold.rank(partner), blocks(kept)).replace(fold.rank(partner), blocks(given))
    });
    fold.around(2 * rounds, halving.chain(doubling), Round::combine, me.whole(), me.whole())
}
