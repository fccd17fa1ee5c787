//! What a rank knows of itself and of others, for errors.

use super::world::MpiWorld;
use crate::comm::Options;
use crate::comm::call::Call;
use crate::comm::lateness::Late;
use crate::comm::recorder::Recorder;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What a rank knows of itself, for errors.
pub(super) struct Reporter {
    pub rank: usize,
    pub ranks: usize,
    pub late: Late,
    pub recorder: Recorder,
    /// The latest collective that each rank of the world is known to have come to, and when.
    seen: Mutex<Vec<Option<(Call, Instant)>>>,
    /// Messages to other ranks, and from them: by group and number in the world.
    sent: Mutex<HashMap<(u64, usize), u64>>,
    received: Mutex<HashMap<(u64, usize), u64>>,
}

impl Reporter {
    pub fn new(world: &MpiWorld, options: &Options) -> Reporter {
        Reporter {
            rank: world.rank,
            ranks: world.size,
            late: Late::new(options),
            recorder: Recorder::new(),
            seen: Mutex::new(vec![None; world.size]),
            sent: Mutex::default(),
            received: Mutex::default(),
        }
    }

    /// The call that the rank is in, and its number.
    pub fn in_words(&self, call: &Call) -> String {
        format!("{call}, its call {}", self.recorder.last().map_or(0, |entry| entry.number))
    }

    /// All of these ranks have come to `call`.
    pub fn see(&self, ranks: &[usize], call: &Call) {
        let (mut seen, now) = (self.seen.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        ranks.iter().for_each(|&rank| seen[rank] = Some((*call, now)));
    }

    pub fn seen(&self, rank: usize) -> Option<(Call, Instant)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[rank]
    }

    /// A message to rank `to` of the world.
    pub fn note_sent(&self, group: u64, to: usize) {
        count(&self.sent, group, to);
    }

    /// And one from rank `from`.
    pub fn note_received(&self, group: u64, from: usize) {
        count(&self.received, group, from);
    }

    pub fn sent(&self) -> Vec<(u64, usize, u64)> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().map(|(&(group, to), &count)| (group, to, count)).collect()
    }

    pub fn received(&self, group: u64, from: usize) -> u64 {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.get(&(group, from)).copied().unwrap_or_default()
    }
}

/// One more.
fn count(messages: &Mutex<HashMap<(u64, usize), u64>>, group: u64, other: usize) {
    *messages.lock().unwrap_or_else(PoisonError::into_inner).entry((group, other)).or_default() += 1;
}
