//! How far above the prompt the picture of a run stands, where a terminal has too few lines for it
//! and for what follows.

use super::terminal::height_of_stdout;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Lines that this process has printed.
static PRINTED: AtomicUsize = AtomicUsize::new(0);
/// The picture, and the lines that were printed before it.
static PICTURE: Mutex<Option<(&str, usize)>> = Mutex::new(None);

/// Counts the lines of a text, which ends with one more line's end than it shows.
pub(super) fn count(text: &str) {
    let lines = |text: &str| text.matches('\n').count();
    let before = PRINTED.fetch_add(lines(text) + 1, Relaxed);
    if let Some((_, begins)) = &mut *PICTURE.lock().unwrap_or_else(PoisonError::into_inner)
        && *begins == before
    {
        // The empty lines above the picture are none of it.
        *begins += lines(&text[..text.len() - text.trim_start_matches('\n').len()]);
    }
}

/// Notes that `what` a reader should look at is printed next.
pub fn picture(what: &'static str) {
    *PICTURE.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, PRINTED.load(Relaxed)));
}

/// The line that says where the picture is, `before` lines further down than now, if it has left
/// the screen when `after` lines have followed that line. A run says it once.
pub fn line(before: usize, after: usize) -> Option<String> {
    let (what, begins) = PICTURE.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let lines = PRINTED.load(Relaxed) - begins + before;
    // With that line itself, and the prompt.
    let has_left = lines + after + 2 > height_of_stdout()?;
    has_left.then(|| format!("{what} begins {lines} lines above."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three lines with one above and one below.
    #[test]
    fn all_lines_are_counted() {
        let printed = || PRINTED.load(Relaxed);
        let start = printed();
        picture("It");
        count("\nfirst\nsecond\nthird\n");
        let (_, begins) = PICTURE.lock().unwrap().unwrap();
        assert_eq!((begins - start, printed() - begins), (1, 4));
    }
}
