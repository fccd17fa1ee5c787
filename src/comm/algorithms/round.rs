//! A round: what one rank sends and receives before it has to wait again.

use crate::comm::meter::even_part;
use std::ops::Range;

/// What one rank does in one round of an algorithm: it sends a message, receives one, or both at the same time.
///
/// Ranges count elements of the buffer that the algorithm works on; it has the same layout on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The round's number in the whole algorithm, from 0. A message is sent and received in rounds of the same number, and
    /// a rank that has nothing to do in a round has no [`Round`] of that number.
    pub number: usize,
    pub send: Option<Outgoing>,
    pub recv: Option<Incoming>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub to: usize,
    pub range: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    pub from: usize,
    pub range: Range<usize>,
    pub arrival: Arrival,
}

/// What is done with elements that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// They are reduced with the ones that are there.
    Combine,
    /// They take the place of the ones that are there.
    Replace,
}

impl Round {
    /// A round in which nothing happens yet.
    pub fn at(number: usize) -> Round {
        Round { number, send: None, recv: None }
    }

    pub fn send(self, to: usize, range: Range<usize>) -> Round {
        Round { send: Some(Outgoing { to, range }), ..self }
    }

    /// Receives elements and reduces them with those that are there.
    pub fn combine(self, from: usize, range: Range<usize>) -> Round {
        Round { recv: Some(Incoming { from, range, arrival: Arrival::Combine }), ..self }
    }

    /// Receives elements in place of those that are there.
    pub fn replace(self, from: usize, range: Range<usize>) -> Round {
        Round { recv: Some(Incoming { from, range, arrival: Arrival::Replace }), ..self }
    }

    /// The same round, `rounds` later.
    pub fn later(self, rounds: usize) -> Round {
        Round { number: self.number + rounds, ..self }
    }
}

/// An algorithm of `total` rounds with time turned round: who sent receives, and the last round comes first.
///
/// A reduce is a broadcast backwards, a gather is a scatter backwards.
pub fn backwards(
    rounds: impl DoubleEndedIterator<Item = Round>,
    total: usize,
    arrival: Arrival,
) -> impl Iterator<Item = Round> {
    rounds.rev().map(move |round| Round {
        number: total - 1 - round.number,
        send: round.recv.map(|recv| Outgoing { to: recv.from, range: recv.range }),
        recv: round.send.map(|send| Incoming { from: send.to, range: send.range, arrival }),
    })
}

/// One member of the group that an algorithm runs in, and its buffer.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub ranks: usize,
    pub rank: usize,
    /// Elements of the buffer.
    pub len: usize,
}

impl Member {
    /// The rank `distance` after this one, around the ring.
    pub fn after(self, distance: usize) -> usize {
        (self.rank + distance) % self.ranks
    }

    /// The rank `distance` before this one, around the ring.
    pub fn before(self, distance: usize) -> usize {
        (self.rank + self.ranks - distance % self.ranks) % self.ranks
    }

    /// This rank's place when ranks are counted from `root` on, around the ring.
    pub fn place(self, root: usize) -> usize {
        (self.rank + self.ranks - root) % self.ranks
    }

    pub fn whole(self) -> Range<usize> {
        0..self.len
    }

    /// Part number `part` of as many as there are ranks, as even as possible.
    pub fn part(self, part: usize) -> Range<usize> {
        even_part(self.len, part, self.ranks)
    }

    /// Some consecutive parts.
    pub fn parts(self, parts: Range<usize>) -> Range<usize> {
        self.part(parts.start).start..self.part(parts.end).start
    }
}
