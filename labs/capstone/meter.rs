//! What each part costs: its calls, its time, and the bytes that it sends.

use crate::parts::Part;
use serde::{Deserialize, Serialize};
use shardlab::comm::Comm;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What one part has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    pub calls: f64,
    pub seconds: f64,
    pub bytes: f64,
}

/// What all parts have used, in the order of [`Part::ALL`].
pub type AllUsed = [Used; Part::ALL.len()];

/// One rank's meter. At every moment one part is at work, or the engine. Its time and bytes count there alone: `average` calls
/// `ring`, and the ring's bytes are the ring's.
pub struct Meter {
    world: Comm,
    now: Mutex<Now>,
}

struct Now {
    used: AllUsed,
    at_work: Option<Part>,
    since: Instant,
    /// Bytes that this rank had sent then.
    sent: u64,
}

impl Meter {
    pub fn new(world: &Comm) -> Meter {
        Meter {
            world: world.clone(),
            now: Mutex::new(Now {
                used: AllUsed::default(),
                at_work: None,
                since: Instant::now(),
                sent: world.total_traffic().bytes,
            }),
        }
    }

    /// Runs a part.
    pub fn part<R>(&self, part: Part, work: impl FnOnce() -> R) -> R {
        self.now().used[part as usize].calls += 1.0;
        self.with(Some(part), work)
    }

    /// Runs the engine's own work, which a part has called.
    pub fn engine<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with(None, work)
    }

    /// What was used since the last call.
    pub fn take(&self) -> AllUsed {
        std::mem::take(&mut self.now().used)
    }

    fn with<R>(&self, part: Option<Part>, work: impl FnOnce() -> R) -> R {
        let before = self.switch(part);
        let result = work();
        self.switch(before);
        result
    }

    /// Counts up to now for whoever was at work. Returns who it was.
    fn switch(&self, to: Option<Part>) -> Option<Part> {
        let sent = self.world.total_traffic().bytes;
        let mut now = self.now();
        if let Some(part) = now.at_work {
            let seconds = now.since.elapsed().as_secs_f64();
            let bytes = (sent - now.sent) as f64;
            now.used[part as usize].seconds += seconds;
            now.used[part as usize].bytes += bytes;
        }
        now.since = Instant::now();
        now.sent = sent;
        std::mem::replace(&mut now.at_work, to)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All ranks' use together: calls and bytes are added up, and time is the mean.
pub fn of_all(comm: &Comm, mine: &AllUsed) -> shardlab::comm::Result<AllUsed> {
    let mut flat: Vec<f64> = mine
        .iter()
        .flat_map(|used| [used.calls, used.seconds / comm.size() as f64, used.bytes])
        .collect();
    comm.all_reduce(&mut flat, shardlab::comm::Reduce::Sum)?;
    let mut all = AllUsed::default();
    for (used, numbers) in all.iter_mut().zip(flat.chunks_exact(3)) {
        *used = Used {
            calls: numbers[0],
            seconds: numbers[1],
            bytes: numbers[2],
        };
    }
    Ok(all)
}
