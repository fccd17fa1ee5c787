//! What communication cost one rank: messages, bytes, seconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counts of one rank since it started, over all its groups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Messages that this rank sent to other ranks.
    pub messages: u64,
    /// Bytes that this rank sent to other ranks.
    pub bytes: u64,
    /// Seconds inside communication calls, waiting included.
    pub seconds: f64,
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;
    /// What was added since an earlier reading.
    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
            seconds: self.seconds - earlier.seconds,
        }
    }
}

#[derive(Default)]
pub(super) struct Meter {
    messages: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Meter {
    pub fn sent(&self, messages: usize, bytes: usize) {
        self.messages.fetch_add(messages as u64, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn took(&self, time: Duration) {
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub fn read(&self) -> Traffic {
        Traffic {
            messages: self.messages.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            seconds: self.nanoseconds.load(Relaxed) as f64 * 1e-9,
        }
    }
}
