//! A rank's knowledge about itself and about others, for errors.

use crate::comm::call::{Call, CallInfo};
use crate::comm::meter::lock;
use crate::comm::recorder::Recorder;
use crate::comm::transport::mpi::board::{Counts, Ending, Lane};
use crate::comm::{CommError, Options};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One rank's calls and messages in a run, for errors.
pub(super) struct Reporter {
    pub rank: usize,
    pub ranks: usize,
    pub options: Options,
    pub recorder: Arc<Recorder>,
    /// The latest collective that each rank of the world is known to have entered, and when.
    seen: Mutex<Vec<Option<(Call, Instant)>>>,
    /// Collectives so far, by group.
    pub calls: Mutex<HashMap<u64, u64>>,
    /// Messages to other ranks so far, and the latest send, by lane.
    sent: Mutex<HashMap<Lane, (u64, Call)>>,
    /// Messages from other ranks so far, by lane.
    received: Mutex<HashMap<Lane, u64>>,
}

impl Reporter {
    pub fn new(rank: usize, ranks: usize, options: &Options) -> Reporter {
        Reporter {
            rank,
            ranks,
            options: options.clone(),
            recorder: Arc::new(Recorder::new()),
            seen: Mutex::new(vec![None; ranks]),
            calls: Mutex::default(),
            sent: Mutex::default(),
            received: Mutex::default(),
        }
    }

    /// The rank's current call, for an error.
    pub fn info(&self, call: &Call) -> CallInfo {
        call.info(Some(self.recorder.number()))
    }

    /// The error of this rank in `call` after the run has failed elsewhere.
    pub fn stopped(&self, call: &Call, cause: CommError) -> CommError {
        CommError::Stopped {
            rank: self.rank,
            call: Box::new(self.info(call)),
            cause: Box::new(cause),
        }
    }

    /// Notes that all of these ranks have entered `call`.
    pub fn see(&self, ranks: &[usize], call: &Call) {
        let mut seen = lock(&self.seen);
        let now = Instant::now();
        for &rank in ranks {
            seen[rank] = Some((*call, now));
        }
    }

    pub fn seen(&self, rank: usize) -> Option<(Call, Instant)> {
        lock(&self.seen)[rank]
    }

    /// Counts a message that this rank has sent on `lane`.
    pub fn note_sent(&self, lane: Lane, call: &Call) {
        let mut sent = lock(&self.sent);
        let (count, latest) = sent.entry(lane).or_insert((0, *call));
        *count += 1;
        *latest = *call;
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

    /// How many collectives this rank has entered, by group.
    pub fn calls(&self) -> Counts {
        lock(&self.calls).iter().map(|(&group, &calls)| (group, calls)).collect()
    }

    /// This rank's report when its part is over.
    pub fn ending(&self) -> Ending {
        let sent = lock(&self.sent)
            .iter()
            .map(|(&lane, (count, latest))| (lane, *count, latest.info(None)))
            .collect();
        Ending {
            calls: self.calls(),
            sent,
            received: lock(&self.received).iter().map(|(&lane, &count)| (lane, count)).collect(),
        }
    }
}
