//! Pairwise exchange: in round k every rank sends to the rank k after it, and receives from the
//! rank k before it.
//!
//! All parts are different, so no two of them can share a message: n-1 rounds, and each rank's link
//! is always busy with one part.

use super::round::{Member, Round};

/// The buffer holds the parts that this rank sends, one per rank, then the parts that it receives,
/// one per rank. A rank's own part needs no message.
pub fn all_to_all(me: Member) -> impl Iterator<Item = Round> {
    let part = me.len / (2 * me.ranks);
    let parts = move |first: usize| first * part..(first + 1) * part;
    (1..me.ranks).map(move |k| {
        let to = me.after(k);
        let from = me.before(k);
        Round::at(k - 1).send(to, parts(to)).replace(from, parts(me.ranks + from))
    })
}
