//! The pipelined chain: each rank passes the data on to the next, a segment at a time.
//!
//! While a rank sends one segment it receives the next: m segments need n-2+m rounds of S/m instead of n-1 rounds of S, so
//! that a long vector takes little more than one transfer, however many ranks there are.

use super::round::{Arrival, Member, Round, backwards};
use crate::comm::meter::even_part;

/// Elements of a segment, at most: 64 KiB of f32.
pub const SEGMENT: usize = 16 * 1024;

/// From the root on, around the ring.
pub fn broadcast(me: Member, root: usize) -> impl DoubleEndedIterator<Item = Round> {
    let segments = segments(me.len);
    let place = me.place(root);
    let (first, last) = (place == 0, place + 1 == me.ranks);
    // Segment j reaches this rank in round place-1+j and leaves it in the next.
    (place.saturating_sub(1)..place + segments).filter_map(move |number| {
        let segment = |j: Option<usize>| j.filter(|&j| j < segments).map(|j| even_part(me.len, j, segments));
        let coming = segment((number + 1).checked_sub(place)).filter(|_| !first);
        let going = segment(number.checked_sub(place)).filter(|_| !last);
        if coming.is_none() && going.is_none() {
            return None;
        }
        let mut round = Round::at(number);
        if let Some(range) = going {
            round = round.send(me.after(1), range);
        }
        if let Some(range) = coming {
            round = round.replace(me.before(1), range);
        }
        Some(round)
    })
}

/// From the far end to the root, each rank adding its own.
pub fn reduce(me: Member, root: usize) -> impl Iterator<Item = Round> {
    // Saturating for one rank, which has no round.
    let total = (me.ranks + segments(me.len)).saturating_sub(2);
    backwards(broadcast(me, root), total, Arrival::Combine)
}

/// Segments of a buffer; an empty one is still a message.
pub fn segments(len: usize) -> usize {
    len.div_ceil(SEGMENT).max(1)
}
