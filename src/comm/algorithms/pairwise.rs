//! Pairwise exchange: in round k everyone sends to the rank k after it, and receives from the rank k before it.
//!
//! No part can travel together with another, since all are different: n-1 rounds, each rank's link always busy with one part.

use super::round::{Member, Round};

/// The buffer is what this rank sends, a part for each rank, then what it receives, a part from each. Its own part needs no
/// message.
pub fn all_to_all(me: Member) -> impl Iterator<Item = Round> {
    let part = me.len / (2 * me.ranks);
    let parts = move |first: usize| first * part..(first + 1) * part;
    (1..me.ranks).map(move |k| {
        let (to, from) = (me.after(k), me.before(k));
        Round::at(k - 1).send(to, parts(to)).replace(from, parts(me.ranks + from))
    })
}
