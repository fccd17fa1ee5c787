//! A round: what one rank sends and receives before it has to wait again.

use crate::comm::meter::even_part;
use std::ops::Range;

/// One rank's part in one round of an algorithm: it sends a message, receives one, or both at the
/// same time.
///
/// Ranges count elements of the buffer that the algorithm works on. The buffer has the same layout
/// on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The round's number in the whole algorithm, from 0. A message is sent and received in rounds
    /// of the same number. A rank without a message in a round has no [`Round`] of that number.
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

/// The use of elements that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Reduces them with its own elements.
    Combine,
    /// Overwrites its own elements.
    Replace,
}

/// Adds a message to a round, with a peer: [`Round::send`], [`Round::combine`] or
/// [`Round::replace`].
pub type Add = fn(Round, usize, Range<usize>) -> Round;

impl Round {
    /// A round without messages, yet.
    pub fn at(number: usize) -> Round {
        Round { number, send: None, recv: None }
    }

    pub fn send(self, to: usize, range: Range<usize>) -> Round {
        Round { send: Some(Outgoing { to, range }), ..self }
    }

    /// Receives elements and reduces them with this rank's own.
    pub fn combine(self, from: usize, range: Range<usize>) -> Round {
        self.recv(from, range, Arrival::Combine)
    }

    /// Receives elements and overwrites this rank's own.
    pub fn replace(self, from: usize, range: Range<usize>) -> Round {
        self.recv(from, range, Arrival::Replace)
    }

    fn recv(self, from: usize, range: Range<usize>, arrival: Arrival) -> Round {
        Round { recv: Some(Incoming { from, range, arrival }), ..self }
    }

    /// The same messages, `rounds` rounds later.
    pub fn later(self, rounds: usize) -> Round {
        Round { number: self.number + rounds, ..self }
    }
}

/// Reverses an algorithm of `total` rounds in time: senders receive, and the last round comes
/// first.
///
/// A reduce is a reversed broadcast, and a gather is a reversed scatter.
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

    /// This rank's distance from `root`, counted upwards around the ring.
    pub fn distance_from(self, root: usize) -> usize {
        (self.rank + self.ranks - root) % self.ranks
    }

    pub fn whole(self) -> Range<usize> {
        0..self.len
    }

    /// Part number `part` of the buffer, which has one part per rank, as even as possible.
    pub fn part(self, part: usize) -> Range<usize> {
        even_part(self.len, part, self.ranks)
    }

    /// Some consecutive parts.
    pub fn parts(self, parts: Range<usize>) -> Range<usize> {
        self.part(parts.start).start..self.part(parts.end).start
    }
}
