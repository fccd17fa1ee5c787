//! How far above the prompt the picture of a run stands, where a terminal has too few lines for it
//! and for what follows.

use super::terminal::height_of_stdout;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Lines that this process has printed.
static PRINTED: AtomicUsize = AtomicUsize::new(0);
/// The picture, and the lines that were printed before it.
static PICTURE: Mutex<Option<(&str, usize)>> = Mutex::new(None);

pub(super) fn count(text: &str) {
    PRINTED.fetch_add(text.lines().count().max(1), Relaxed);
}

/// Notes that `what` a reader should look at is printed next.
pub fn picture(what: &'static str) {
    *PICTURE.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, PRINTED.load(Relaxed)));
}

/// The line that says where the picture is, if `more` lines still follow and it has left the
/// screen.
pub fn line(more: usize) -> Option<String> {
    let (what, before) = (*PICTURE.lock().unwrap_or_else(PoisonError::into_inner))?;
    // The line itself, and the prompt.
    let lines = PRINTED.load(Relaxed) - before + more + 1;
    (lines + 1 > height_of_stdout()?).then(|| format!("{what} begins {lines} lines above."))
}
