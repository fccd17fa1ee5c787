//! A life as a process of its own, so that it can be killed.
//!
//! The program starts itself with the hidden flag `--life`. The child prints a line for each step,
//! and what is left at its end. It never knows that it will be killed.

use crate::Job;
use crate::life::{self, Each, Life, Span};
use crate::parts::{Part, Versions, Whose};
use crate::step::Step;
use anyhow::{Context, Result, bail};
use shardlab::error::printable;
use shardlab::launch::signals;
use shardlab::notice::complain;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Before each line of a child that is for its parent.
const STEP: &str = "@step ";
const LIFE: &str = "@life ";

/// A life in which no step ends for so long does not end by itself. What waits is said earlier.
const PATIENCE: Duration = Duration::from_secs(45);
const NOTICE: Duration = Duration::from_secs(10);

/// Once a life has taken all of that patience, others get less: ten times the longest step so far,
/// and at least this.
const LEAST: Duration = Duration::from_secs(5);

/// The longest line that is read as one, and how many lines of a life are shown of what its parts
/// print.
const LONGEST: u64 = 1 << 20;
const SHOWN: usize = 200;

/// How this program starts lives as processes, and how long it waits for their steps.
pub struct Children<'a> {
    flags: &'a [String],
    /// The longest wait for a step that came.
    longest: Cell<Duration>,
    /// Whether a step did not come.
    lost: Cell<bool>,
}

impl<'a> Children<'a> {
    /// Lives get these flags of the program.
    pub fn new(flags: &'a [String]) -> Children<'a> {
        Children { flags, longest: Cell::default(), lost: Cell::default() }
    }

    fn patience(&self) -> Duration {
        if self.lost.get() {
            (10 * self.longest.get()).clamp(LEAST, PATIENCE)
        } else {
            PATIENCE
        }
    }

    /// Runs one life as a process. Life 1 would go on after its last step: it is killed.
    pub fn run(&self, versions: &Versions, span: &Span, each: Each) -> Life {
        let mut life = Life { folder: span.folder.clone(), ..Life::default() };
        let ran = start(self.flags, versions, span).and_then(|mut child| {
            let shown = show(child.stderr.take().context("the child has no errors")?);
            let watched = self.watch(&mut child, span, &mut life, each);
            // SIGKILL: no rank can close a file or tell anyone. After a life that has ended, it
            // does nothing.
            child.kill().ok();
            child.wait()?;
            // Its last words. What it has started may keep the pipe open for longer.
            shown.recv_timeout(Duration::from_secs(1)).ok();
            watched
        });
        if let Err(error) = ran {
            life.failed.get_or_insert(format!("{error:#}"));
        }
        life
    }

    /// Reads a child's lines, until it ends or has taken the last step that it may take.
    fn watch(&self, child: &mut Child, span: &Span, life: &mut Life, each: Each) -> Result<()> {
        let out = child.stdout.take().context("the child has no output")?;
        let (send, lines) = channel();
        // Reading blocks, so a thread reads. It ends with the child.
        std::thread::spawn(move || read_lines(out, |line| send.send(line).is_ok()));
        let mut others = 0;
        let mut since = Instant::now();
        loop {
            let step = life.steps.last().map_or(0, |step| step.step) + 1;
            let Some(line) = self.next_line(&lines, since, span.life, step)? else {
                let status = child.wait()?;
                bail!("the process ended by itself: {status}");
            };
            if let Some(step) = line.strip_prefix(STEP) {
                let step: Step = serde_json::from_str(step)?;
                let number = step.step;
                each(span.life, &step);
                life.steps.push(step);
                if span.life == 1 && number >= span.until {
                    life.killed = true;
                    return Ok(());
                }
            } else if let Some(end) = line.strip_prefix(LIFE) {
                let Life { failed, end, .. } = serde_json::from_str(end)?;
                (life.failed, life.end) = (failed, end);
                return Ok(());
            } else {
                tell(&line, &mut others); // something that a part prints
                continue;
            }
            self.longest.set(self.longest.get().max(since.elapsed()));
            since = Instant::now();
        }
    }

    /// The next line, or none after the last. An error if no step has ended since `since` for too
    /// long.
    fn next_line(
        &self,
        lines: &Receiver<String>,
        since: Instant,
        life: usize,
        step: usize,
    ) -> Result<Option<String>> {
        let patience = self.patience();
        // One patience has been lost already: then nobody needs to hear of it again.
        let notice = if self.lost.get() { patience } else { NOTICE };
        let waited = since.elapsed();
        let rest = if waited < notice { notice } else { patience }.saturating_sub(waited);
        match lines.recv_timeout(rest) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) if since.elapsed() >= patience => {
                self.lost.set(true);
                bail!("no step ended for {} seconds", patience.as_secs())
            }
            Err(RecvTimeoutError::Timeout) => {
                complain(&format!(
                    "notice: life {life} has been in step {step} for {} s: does a part wait? After {} s it is ended",
                    NOTICE.as_secs(),
                    patience.as_secs()
                ));
                self.next_line(lines, since, life, step)
            }
        }
    }
}

fn start(flags: &[String], versions: &Versions, span: &Span) -> Result<Child> {
    let of = |whose: Whose| -> String {
        let all = Part::ALL.iter().zip(versions);
        let words = all.filter(|(_, found)| **found == whose);
        words.map(|(part, _)| part.word()).collect::<Vec<_>>().join(",")
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(flags);
    command.args(["--life", &span.life.to_string()]);
    // It is told to go on: only its parent knows where it will end.
    command.args(["--until", &span.until.to_string()]);
    command.args(["--yours", &of(Whose::Yours), "--leave", &of(Whose::Without)]);
    command.arg("--out").arg(&span.folder);
    command.arg("--from").arg(&span.from);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A job that is killed on a login node leaves no life behind.
    signals::end_with_parent(&mut command);
    command.spawn().context("the program could not start itself")
}

/// Hands over each line of a pipe, until `take` wants no more. A part may print anything, also what
/// is no text and never ends.
fn read_lines(pipe: impl Read, mut take: impl FnMut(String) -> bool) {
    let mut pipe = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while pipe
        .by_ref()
        .take(LONGEST)
        .read_until(b'\n', &mut bytes)
        .is_ok_and(|read| read > 0)
    {
        let line = String::from_utf8_lossy(&bytes);
        if !take(line.trim_end_matches('\n').to_string()) {
            return;
        }
        bytes.clear();
    }
}

/// Shows a child's errors and notices as they come. The receiver hears of the end.
fn show(errors: ChildStderr) -> Receiver<()> {
    let (send, ended) = channel();
    std::thread::spawn(move || {
        let mut lines = 0;
        read_lines(errors, |line| {
            tell(&line, &mut lines);
            true
        });
        send.send(()).ok();
    });
    ended
}

/// Shows a line that a part has printed: on stderr, because with --json stdout is one document.
/// `before` counts such lines.
fn tell(line: &str, before: &mut usize) {
    *before += 1;
    if let Some(line) = shown(line, *before) {
        complain(&line);
    }
}

/// What is shown of the line with this number: the first lines, which do nothing to the terminal.
fn shown(line: &str, number: usize) -> Option<String> {
    match number {
        ..=SHOWN if line.is_empty() => None,
        ..=SHOWN => Some(printable(line)),
        _ => (number == SHOWN + 1).then(|| "(and so on)".to_string()),
    }
}

/// What the child does: the life, and its lines.
pub fn live(job: &Job, span: &Span) -> Result<()> {
    let say = |before: &str, what: String| {
        let mut out = std::io::stdout().lock();
        // A part may have begun a line.
        let said = writeln!(out, "\n{before}{what}").and_then(|()| out.flush());
        // Nobody reads it any more: its parent has ended.
        if said.is_err() {
            std::process::exit(1);
        }
    };
    let each = |_, step: &Step| {
        if let Ok(line) = serde_json::to_string(step) {
            say(STEP, line);
        }
    };
    // Life 1 is to be killed: it goes on to the end, if nobody does it.
    let until = if span.life == 1 { job.plan.steps } else { span.until };
    let span = Span { until, ..span.clone() };
    let life = life::live(job, &span, &each);
    let rest = Life { steps: Vec::new(), ..life };
    say(LIFE, serde_json::to_string(&rest)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_come_takes_all_patience_once() {
        let children = Children::new(&[]);
        let (send, lines) = channel();
        let long_ago = Instant::now().checked_sub(PATIENCE).unwrap();
        send.send("a line".to_string()).unwrap();
        let next = |since| children.next_line(&lines, since, 1, 3);
        assert_eq!(next(Instant::now()).unwrap().unwrap(), "a line");
        assert_eq!(children.patience(), PATIENCE);
        let error = next(long_ago).unwrap_err().to_string();
        assert_eq!(error, "no step ended for 45 seconds");
        assert_eq!(children.patience(), LEAST);
        // On a slow machine a step takes longer.
        children.longest.set(Duration::from_secs(2));
        assert_eq!(children.patience(), Duration::from_secs(20));
        children.longest.set(PATIENCE);
        assert_eq!(children.patience(), PATIENCE);
        drop(send);
        assert_eq!(next(Instant::now()).unwrap(), None);
    }

    #[test]
    fn what_a_part_prints_is_read_in_lines_whatever_it_is() {
        let mut lines = Vec::new();
        read_lines(&b"one\n\xff\xfe\n\nno end"[..], |line| {
            lines.push(line);
            true
        });
        assert_eq!(lines, ["one", "\u{fffd}\u{fffd}", "", "no end"]);
        // A line without an end does not fill the memory.
        let mut lengths = Vec::new();
        read_lines(std::io::repeat(b'x'), |line| {
            lengths.push(line.len() as u64);
            lengths.len() < 2
        });
        assert_eq!(lengths, [LONGEST, LONGEST]);
    }

    #[test]
    fn what_a_part_prints_does_nothing_to_the_terminal_and_comes_to_an_end() {
        assert_eq!(shown("a\u{1b}[2J\u{7}", 1).unwrap(), "a\\u{1b}[2J\\u{7}");
        assert_eq!(shown("", 1), None);
        assert!(shown("x", SHOWN).is_some());
        assert_eq!(shown("x", SHOWN + 1).unwrap(), "(and so on)");
        assert_eq!(shown("x", SHOWN + 2), None);
    }
}
