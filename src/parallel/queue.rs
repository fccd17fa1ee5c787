//! Collectives in flight, each with a note on its purpose.

use super::Averaged;
use crate::comm::{Element, Pending, Result};
use std::collections::VecDeque;
use std::time::Instant;

/// Collectives in flight, in the order in which they were started.
pub(super) struct Queue<K, T>(VecDeque<Flying<K, T>>);

struct Flying<K, T> {
    note: K,
    /// Elements of the buffer that is in flight.
    elements: usize,
    pending: Pending<T>,
}

impl<K, T> Default for Queue<K, T> {
    fn default() -> Queue<K, T> {
        Queue(VecDeque::new())
    }
}

impl<K, T: Element> Queue<K, T> {
    pub fn push(&mut self, note: K, elements: usize, pending: Pending<T>) {
        self.0.push_back(Flying { note, elements, pending });
    }

    /// The notes of all collectives in flight.
    pub fn notes(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|flying| &flying.note)
    }

    /// Elements of all buffers in flight.
    pub fn elements(&self) -> usize {
        self.0.iter().map(|flying| flying.elements).sum()
    }

    /// Lets the oldest collectives make progress, up to the first one that is not complete. Never
    /// waits.
    pub fn advance(&mut self) -> Result<()> {
        for flying in &mut self.0 {
            if !flying.pending.test()? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the oldest collective's result if it is complete. Never waits. A collective only
    /// makes progress when it is tested.
    pub fn ready(&mut self) -> Result<Option<(K, Vec<T>, Averaged)>> {
        let Some(oldest) = self.0.front_mut() else {
            return Ok(None);
        };
        if oldest.pending.test()? { self.next() } else { Ok(None) }
    }

    /// Waits for the oldest collective, and returns its result.
    pub fn next(&mut self) -> Result<Option<(K, Vec<T>, Averaged)>> {
        self.find(|_| true)
    }

    /// Waits for the oldest collective with a matching note, and returns its result.
    pub fn find(&mut self, matches: impl Fn(&K) -> bool) -> Result<Option<(K, Vec<T>, Averaged)>> {
        let position = self.0.iter().position(|flying| matches(&flying.note));
        let Some(Flying { note, mut pending, .. }) =
            position.and_then(|position| self.0.remove(position))
        else {
            return Ok(None);
        };
        let waiting = Instant::now();
        let flight = pending.complete()?;
        let result = pending.wait()?;
        let seen = Averaged {
            start: flight.start,
            end: flight.end,
            waited: (waiting, Instant::now()),
        };
        Ok(Some((note, result, seen)))
    }
}
