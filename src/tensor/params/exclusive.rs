//! A lock for what only one rank uses. It never waits: a rank that waited for its own guard would
//! wait for ever. Where a guard is in the way, an error names the line that took it.
//!
//! A `RefCell` does the same, but other threads may not see one, and a tape, whose links hold
//! parameters, may go to other threads, as a node of candle's graph.

use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
    TryLockResult,
};

/// A line of the source.
type Line = &'static Location<'static>;

/// A value that a rank reads in several places at a time, or changes in one.
pub struct Exclusive<T> {
    /// What an error calls the value.
    name: &'static str,
    value: RwLock<T>,
    /// The lines that took the guards that exist now.
    lines: Mutex<Vec<Line>>,
}

/// A guard is in the way.
#[derive(Debug, thiserror::Error)]
#[error(
    "the {name} are {}\nhelp: drop that guard first: drop({name}), or keep it in a block of its own",
    .line.map_or("borrowed by a guard of another thread".to_string(), |line| {
        format!("still borrowed by a guard from {line}")
    })
)]
pub struct StillHeld {
    name: &'static str,
    /// The line that took the guard, unless another thread has dropped it since.
    line: Option<Line>,
}

impl<T> Exclusive<T> {
    pub fn new(name: &'static str, value: T) -> Exclusive<T> {
        // With its room now: what a step allocates is then the model's.
        let lines = Mutex::new(Vec::with_capacity(4));
        Exclusive { name, value: RwLock::new(value), lines }
    }

    /// To read the value.
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard<'_, T>, StillHeld> {
        self.hold(self.value.try_read())
    }

    /// To change the value.
    #[track_caller]
    pub fn write(&self) -> Result<WriteGuard<'_, T>, StillHeld> {
        self.hold(self.value.try_write())
    }

    #[track_caller]
    fn hold<G>(&self, tried: TryLockResult<G>) -> Result<Held<'_, G>, StillHeld> {
        let guard = match tried {
            Ok(guard) => guard,
            // A panic while it was changed: what it is now is what the panic's message is about.
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(StillHeld { name: self.name, line: self.lines().last().copied() });
            }
        };
        let line = Location::caller();
        self.lines().push(line);
        Ok(Held { guard, line, lines: &self.lines })
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard to read.
pub type ReadGuard<'a, T> = Held<'a, RwLockReadGuard<'a, T>>;
/// A guard to change.
pub type WriteGuard<'a, T> = Held<'a, RwLockWriteGuard<'a, T>>;

/// A guard, and the line that took it.
pub struct Held<'a, G> {
    guard: G,
    line: Line,
    lines: &'a Mutex<Vec<Line>>,
}

impl<G> Drop for Held<'_, G> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = lines.iter().rposition(|line| std::ptr::eq(*line, self.line)) {
            lines.swap_remove(at);
        }
    }
}

impl<G: Deref> Deref for Held<'_, G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_line_of_the_guard_that_is_left() {
        let numbers = Exclusive::new("numbers", 1);
        let first = numbers.read().unwrap();
        let line = line!() - 1;
        let second = numbers.read().unwrap();
        drop(second);
        let error = numbers.write().map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("exclusive.rs:{line}:")), "{error}");
        assert!(error.contains("drop(numbers)"), "{error}");
        drop(first);
        *numbers.write().unwrap() += 1;
        let changed = numbers.write().unwrap();
        assert!(numbers.read().is_err());
        assert_eq!(*changed, 2);
    }
}
