//! What each part costs: its calls, its time, and the bytes that it sends.

use crate::parts::Part;
use serde::{Deserialize, Serialize};
use shardlab::comm::{Comm, Reduce, Result};
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

/// One rank's meter. At every moment one part is at work, or the engine. Its time and bytes count
/// there alone: `average` calls `ring`, and the ring's bytes are the ring's.
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

    /// Counts up to now for the part that was at work. Returns who it was.
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

/// All ranks' use together. Calls and bytes are added up. Time is that of the rank with the least:
/// in a collective all others wait for the last one to come, and that one waits for nobody.
pub fn of_all(comm: &Comm, mine: &AllUsed) -> Result<AllUsed> {
    let counts = mine.iter().flat_map(|used| [used.calls, used.bytes]);
    let mut counts: Vec<f64> = counts.collect();
    comm.all_reduce(&mut counts, Reduce::Sum)?;
    let mut seconds: Vec<f64> = mine.iter().map(|used| used.seconds).collect();
    comm.all_reduce(&mut seconds, Reduce::Min)?;
    Ok(std::array::from_fn(|i| Used {
        calls: counts[2 * i],
        bytes: counts[2 * i + 1],
        seconds: seconds[i],
    }))
}
