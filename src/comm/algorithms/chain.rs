//! The pipelined chain: each rank passes the data on to the next, one segment per round.
//!
//! While a rank sends one segment it receives the next. So m segments need n-2+m rounds of S/m
//! instead of n-1 rounds of S: a long vector takes little more than one transfer, however many
//! ranks there are.

use super::round::{Arrival, Member, Round, backwards};
use crate::comm::meter::even_part;

/// Elements of a segment, at most: 64 KiB of f32.
pub const SEGMENT: usize = 16 * 1024;

/// Every rank passes the root's segments on, around the ring.
pub fn broadcast(me: Member, root: usize) -> impl DoubleEndedIterator<Item = Round> {
    let segments = segments(me.len);
    let distance = me.distance_from(root);
    let first = distance == 0;
    let last = distance + 1 == me.ranks;
    let segment =
        move |j: Option<usize>| j.filter(|&j| j < segments).map(|j| even_part(me.len, j, segments));
    // Segment j reaches this rank in round distance-1+j and leaves it in the next.
    let round = move |number: usize| {
        let mut round = Round::at(number);
        if let Some(range) = segment(number.checked_sub(distance)).filter(|_| !last) {
            round = round.send(me.after(1), range);
        }
        if let Some(range) = segment((number + 1).checked_sub(distance)).filter(|_| !first) {
            round = round.replace(me.before(1), range);
        }
        round
    };
    let rounds = (distance.saturating_sub(1)..distance + segments).map(round);
    rounds.filter(|round| round.send.is_some() || round.recv.is_some())
}

/// From the far end to the root, each rank adds its own segments.
pub fn reduce(me: Member, root: usize) -> impl Iterator<Item = Round> {
    // One rank has no round: its total would be negative.
    let total = (me.ranks + segments(me.len)).saturating_sub(2);
    backwards(broadcast(me, root), total, Arrival::Combine)
}

/// Segments of a buffer. An empty buffer is still one message.
fn segments(len: usize) -> usize {
    len.div_ceil(SEGMENT).max(1)
}
