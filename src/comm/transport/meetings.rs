//! What rank threads have brought for each other: collectives that not all have entered, and
//! messages on their way.

use super::exchange::Exchange;
use super::message::Message;
use crate::comm::call::Call;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A group's number. The world is 0, and splits count upwards.
pub(super) type GroupId = u64;

/// The key of a meeting: the group, and the call's number in the group.
pub(super) type Key = (GroupId, u64);

/// A queue of messages: group, sender and receiver (numbers in the world), tag.
pub(super) type Lane = (GroupId, usize, usize, u16);

/// A message, and the call that sent it.
pub(super) struct Mail {
    pub call: Call,
    pub message: Message,
    /// When the message arrives, on a simulated link.
    pub arrives: Option<Instant>,
}

/// One collective of one group.
#[derive(Default)]
pub(super) struct Meeting {
    pub exchange: Exchange,
    /// When the simulated link has carried the collective. Known when all ranks have come.
    pub over: OnceLock<Instant>,
    /// When the last block of a non-blocking collective was done.
    pub reduced: OnceLock<Instant>,
}

/// The collectives that some ranks have entered and others have not.
#[derive(Default)]
pub(super) struct Meetings {
    open: Vec<(Key, Call, Arc<Meeting>)>,
    /// Meetings that are over, for reuse: a call allocates nothing.
    spare: Vec<Arc<Meeting>>,
}

impl Meetings {
    /// The meeting for a call, and the call of the rank that came first.
    pub fn open(&mut self, key: Key, call: &Call, size: usize) -> (Call, Arc<Meeting>) {
        if let Some((_, first, meeting)) = self.open.iter().find(|(other, ..)| *other == key) {
            return (*first, meeting.clone());
        }
        let fits = |meeting: &Arc<Meeting>| meeting.exchange.ranks() == size;
        let new = || Arc::new(Meeting { exchange: Exchange::new(size), ..Meeting::default() });
        let spare = self.spare.iter().position(fits).map(|i| self.spare.swap_remove(i));
        let meeting = spare.unwrap_or_else(|| {
            // Two: a rank may enter the next meeting before the last rank has left this one.
            self.spare.push(new());
            new()
        });
        self.open.push((key, *call, meeting.clone()));
        (*call, meeting)
    }

    /// All ranks have come to a meeting: the next call with this key is not for it.
    pub fn close(&mut self, key: Key) {
        if let Some(i) = self.open.iter().position(|(other, ..)| *other == key) {
            self.open.swap_remove(i);
        }
    }

    /// Keeps a meeting that no rank uses any more.
    pub fn keep(&mut self, meeting: Arc<Meeting>) {
        self.spare.push(meeting);
    }
}
