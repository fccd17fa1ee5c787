//! The one line that moves: what a silent program is doing. Nothing of it is left.
//!
//! It is the last line of a terminal, and is written in place of itself. Whatever else is printed
//! erases it first, and so do an error, a panic and Ctrl-C. There is none in a file, a pipe, a
//! notebook, or CI.

use super::terminal::{DEFAULT_WIDTH, asked_width, is_looked_at, width_of_stdout};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Back to the line's beginning, and erase from there.
const ERASE: &str = "\r\x1b[K";

/// The line changes about five times a second, and appears when nothing else has been printed for
/// so long.
const TICK: Duration = Duration::from_millis(200);

/// A text that stays for longer than this is followed by how long that is: something still moves.
const LONG: Duration = Duration::from_secs(2);

static LINE: Mutex<Line> = Mutex::new(Line::NONE);
/// Whether the line is there: for a handler of signals, which may not lock.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

struct Line {
    /// What to show, and since when.
    text: Option<(String, Instant)>,
    /// What is shown.
    shown: Option<String>,
    /// When something else was last printed.
    printed: Option<Instant>,
}

impl Line {
    const NONE: Line = Line { text: None, shown: None, printed: None };

    fn set(&mut self, text: String, now: Instant) {
        self.printed.get_or_insert(now);
        if self.text.as_ref().is_none_or(|(old, _)| *old != text) {
            self.text = Some((text, now));
        }
    }

    /// Shows the text in less than `width` columns. A line that the terminal had to fold could not
    /// be erased.
    fn tick(&mut self, out: &mut impl Write, now: Instant, width: usize) -> io::Result<()> {
        let Some((text, since)) = &self.text else {
            return Ok(());
        };
        let quiet = now.saturating_duration_since(self.printed.unwrap_or(now));
        if quiet < TICK {
            return Ok(());
        }
        let stays = now.saturating_duration_since(*since);
        let mut line = format!("  {text}");
        if stays >= LONG {
            line += &format!(" ({} s so far)", stays.as_secs());
        }
        let line: String = line.chars().take(width.saturating_sub(1)).collect();
        if self.shown.as_ref() == Some(&line) {
            return Ok(());
        }
        // First: a signal may come as soon as the line is there.
        IS_SHOWN.store(true, SeqCst);
        out.write_all(format!("{ERASE}{line}").as_bytes())?;
        self.shown = Some(line);
        out.flush()
    }

    /// Erases what is shown: something else is about to be printed.
    fn erase(&mut self, out: &mut impl Write, now: Instant) -> io::Result<()> {
        self.printed = Some(now);
        self.text = None;
        if self.shown.take().is_some() {
            out.write_all(ERASE.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

/// Shows on the terminal what this program is doing, until something is printed. Only one rank may
/// call it.
pub fn progress(text: impl FnOnce() -> String) {
    if !is_wanted() {
        return;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        erase_at_the_end();
        // What computes may be at one step for long.
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(TICK);
                let mut line = lock();
                // A terminal that cannot be written has nobody who waits.
                line.tick(&mut io::stdout(), Instant::now(), width()).ok();
            }
        });
    });
    lock().set(text(), Instant::now());
}

/// Calls `print`, which prints something else. Nothing comes between.
pub fn erased<T>(print: impl FnOnce() -> T) -> T {
    let mut line = lock();
    line.erase(&mut io::stdout(), Instant::now()).ok();
    IS_SHOWN.store(false, SeqCst);
    print()
}

fn lock() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether someone looks at a terminal that can erase.
fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let variable = |name| std::env::var(name).unwrap_or_default();
        decide(is_looked_at(&io::stdout()), &variable("TERM"), &variable("CI"))
    })
}

fn decide(terminal: bool, term: &str, ci: &str) -> bool {
    terminal && !term.is_empty() && term != "dumb" && ci.is_empty()
}

/// The terminal's columns. `COLUMNS` cannot make it wider than it is.
fn width() -> usize {
    width_of_stdout().or(asked_width()).unwrap_or(DEFAULT_WIDTH)
}

/// A panic and a signal that ends the process erase the line, too.
fn erase_at_the_end() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Not while the line is being written: the thread that panics may be the one that writes
        // it.
        if let Ok(mut line) = LINE.try_lock() {
            line.erase(&mut io::stdout(), Instant::now()).ok();
        }
        hook(info);
    }));
    #[cfg(unix)]
    // SAFETY: the handler only uses an atomic and `write`.
    unsafe {
        crate::signals::before_the_end(on_signal);
    }
}

#[cfg(unix)]
extern "C" fn on_signal() {
    if IS_SHOWN.load(SeqCst) {
        // SAFETY: the bytes are the program's own.
        unsafe { libc::write(libc::STDOUT_FILENO, ERASE.as_ptr().cast(), ERASE.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IsTerminal;

    /// What a terminal shows in the end: `\r` and `ESC [ K` erase a line.
    fn shown(written: &[u8]) -> Vec<String> {
        let text = String::from_utf8(written.to_vec()).unwrap();
        let left = |line: &str| line.rsplit(ERASE).next().unwrap_or_default().to_string();
        text.split('\n').map(left).collect()
    }

    /// A thousand milliseconds of a line whose step changes in each, and what was written.
    fn a_second(line: &mut Line, begin: Instant, columns: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for ms in 1..=1000 {
            let now = begin + Duration::from_millis(ms);
            line.set(format!("step {ms}"), now);
            if ms % 200 == 0 {
                line.tick(&mut out, now, columns).unwrap();
            }
        }
        out
    }

    #[test]
    fn the_line_is_replaced_and_leaves_nothing() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut line = Line::NONE;
        line.erase(&mut Vec::new(), begin).unwrap();
        let mut out = a_second(&mut line, begin, 80);
        assert_eq!(shown(&out), ["  step 1000"]);
        let writes = String::from_utf8(out.clone()).unwrap();
        assert_eq!(writes.matches(ERASE).count(), 5, "{writes:?}");
        line.erase(&mut out, at(1001)).unwrap();
        out.extend(b"step=1001 loss=2.1\n");
        assert_eq!(shown(&out), ["step=1001 loss=2.1", ""]);
        // What was printed has the screen for a while, and a line that is gone is neither erased
        // nor shown again.
        let length = out.len();
        line.erase(&mut out, at(1001)).unwrap();
        line.tick(&mut out, at(1900), 80).unwrap();
        line.set("step 1002".into(), at(1101));
        line.tick(&mut out, at(1200), 80).unwrap();
        assert_eq!(out.len(), length);
        line.tick(&mut out, at(1201), 80).unwrap();
        assert_eq!(shown(&out), ["step=1001 loss=2.1", "  step 1002"]);
    }

    #[test]
    fn a_step_that_takes_long_says_how_long() {
        let begin = Instant::now();
        let mut line = Line::NONE;
        let mut ends = Vec::new();
        for seconds in [1, 2, 3] {
            let mut out = Vec::new();
            line.set("step 7 of 9".into(), begin);
            let now = begin + Duration::from_secs(seconds);
            line.tick(&mut out, now, 80).unwrap();
            line.tick(&mut out, now, 80).unwrap(); // nothing has changed
            ends.extend(shown(&out));
        }
        assert_eq!(
            ends,
            ["  step 7 of 9", "  step 7 of 9 (2 s so far)", "  step 7 of 9 (3 s so far)"]
        );
    }

    #[test]
    fn a_narrow_terminal_gets_a_short_line() {
        let mut line = Line::NONE;
        assert_eq!(shown(&a_second(&mut line, Instant::now(), 10)), ["  step 10"]);
    }

    #[test]
    fn only_a_terminal_that_can_erase_and_is_looked_at_has_the_line() {
        assert!(decide(true, "xterm", ""));
        for (terminal, term, ci) in [
            (false, "xterm", ""),
            (true, "dumb", ""),
            (true, "", ""),
            (true, "xterm", "true"),
        ] {
            assert!(!decide(terminal, term, ci), "{terminal} {term} {ci}");
        }
    }

    #[test]
    fn tests_have_no_terminal() {
        if !io::stdout().is_terminal() {
            progress(|| panic!("nobody asks for this text"));
        }
    }
}
