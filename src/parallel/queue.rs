//! Collectives in flight, each with a note on what it is for.

use super::Averaged;
use crate::comm::{Element, Pending, Result};
use std::collections::VecDeque;
use std::time::Instant;

/// In the order in which they were started.
pub(super) struct Queue<K, T>(VecDeque<(K, Pending<T>)>);

impl<K, T> Default for Queue<K, T> {
    fn default() -> Queue<K, T> {
        Queue(VecDeque::new())
    }
}

impl<K, T: Element> Queue<K, T> {
    pub fn push(&mut self, what: K, pending: Pending<T>) {
        self.0.push_back((what, pending));
    }

    /// The notes of all collectives in flight.
    pub fn all(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(what, _)| what)
    }

    /// Lets the first ones go on, up to one that is not done. Never waits.
    pub fn advance(&mut self) -> Result<()> {
        for (_, pending) in &mut self.0 {
            if !pending.test()? {
                break;
            }
        }
        Ok(())
    }

    /// The first, if it is done. Never waits; a collective advances only when somebody looks after it.
    pub fn ready(&mut self) -> Result<Option<(K, Vec<T>, Averaged)>> {
        let Some((_, pending)) = self.0.front_mut() else { return Ok(None) };
        if pending.test()? { self.next() } else { Ok(None) }
    }

    /// The first, waited for if need be.
    pub fn next(&mut self) -> Result<Option<(K, Vec<T>, Averaged)>> {
        self.take(0)
    }

    /// The one at this position, waited for if need be.
    fn take(&mut self, position: usize) -> Result<Option<(K, Vec<T>, Averaged)>> {
        let Some((what, mut pending)) = self.0.remove(position) else { return Ok(None) };
        let waiting = Instant::now();
        let flight = pending.complete()?;
        let result = pending.wait()?;
        let seen = Averaged { start: flight.start, end: flight.end, waited: (waiting, Instant::now()) };
        Ok(Some((what, result, seen)))
    }

    /// The first whose note is as `is_it` says, waited for.
    pub fn find(&mut self, is_it: impl Fn(&K) -> bool) -> Result<Option<(K, Vec<T>, Averaged)>> {
        match self.0.iter().position(|(what, _)| is_it(what)) {
            Some(position) => self.take(position),
            None => Ok(None),
        }
    }
}
