//! What a rank knows of itself and of others, for errors.

use super::world::MpiWorld;
use crate::comm::Options;
use crate::comm::call::Call;
use crate::comm::recorder::Recorder;
use crate::comm::transport::board::{Counts, Ending, Lane};
use crate::comm::transport::lateness::Late;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a rank knows of itself, for errors.
pub(super) struct Reporter {
    pub rank: usize,
    pub ranks: usize,
    pub options: Options,
    pub late: Late,
    pub recorder: Recorder,
    /// The latest collective that each rank of the world is known to have come to, and when.
    seen: Mutex<Vec<Option<(Call, Instant)>>>,
    /// Messages to other ranks so far, with the latest send.
    sent: Mutex<HashMap<Lane, (u64, Call)>>,
    /// Messages from other ranks so far.
    received: Mutex<HashMap<Lane, u64>>,
}

impl Reporter {
    pub fn new(world: &MpiWorld, options: &Options) -> Reporter {
        Reporter {
            rank: world.rank,
            ranks: world.size,
            options: options.clone(),
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
        let (mut seen, now) = (lock(&self.seen), Instant::now());
        ranks.iter().for_each(|&rank| seen[rank] = Some((*call, now)));
    }

    pub fn seen(&self, rank: usize) -> Option<(Call, Instant)> {
        lock(&self.seen)[rank]
    }

    /// Counts a message that this rank has sent on `lane`.
    pub fn note_sent(&self, lane: Lane, call: &Call) {
        let mut sent = lock(&self.sent);
        let (count, latest) = sent.entry(lane).or_insert((0, *call));
        (*count, *latest) = (*count + 1, *call);
    }

    /// Counts a message that this rank has received on `lane`.
    pub fn note_received(&self, lane: Lane) {
        *lock(&self.received).entry(lane).or_default() += 1;
    }

    pub fn sent(&self) -> Vec<(Lane, u64)> {
        lock(&self.sent).iter().map(|(&lane, &(count, _))| (lane, count)).collect()
    }

    pub fn received(&self, lane: Lane) -> u64 {
        lock(&self.received).get(&lane).copied().unwrap_or_default()
    }

    /// What this rank has done, now that its part is over.
    pub fn ending(&self, calls: Counts) -> Ending {
        let sent = lock(&self.sent).iter().map(|(&lane, (count, latest))| (lane, *count, latest.to_string())).collect();
        Ending { calls, sent, received: lock(&self.received).iter().map(|(&lane, &count)| (lane, count)).collect() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
