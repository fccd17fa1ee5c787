//! The bytes that a rank's program holds, by the allocator, whenever it computes or communicates.
//!
//! What the transport allocates for messages is not the program's: it is counted apart, and left
//! out.

use shardlab::allocator::live;

pub(crate) struct Held {
    /// Live when the program began.
    before: isize,
    /// Allocated by the transport and not freed, less what it has freed for other ranks.
    outside: isize,
    peak: isize,
}

impl Held {
    pub fn new() -> Held {
        Held { before: live(), outside: 0, peak: 0 }
    }

    /// Looks at what is live now.
    pub fn look(&mut self) {
        self.peak = self.peak.max(live() - self.before - self.outside);
    }

    /// Begins a call of the transport. [`Held::back`] takes the result.
    pub fn leave(&mut self) -> isize {
        self.look();
        live()
    }

    /// Ends a call of the transport.
    pub fn back(&mut self, left_at: isize) {
        self.outside += live() - left_at;
        self.look();
    }

    /// Bytes that are live now.
    pub fn now(&self) -> u64 {
        (live() - self.before - self.outside).max(0) as u64
    }

    /// The most bytes so far.
    pub fn peak(&self) -> u64 {
        self.peak.max(0) as u64
    }
}
