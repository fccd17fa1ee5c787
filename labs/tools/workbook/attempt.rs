//! One check of one exercise, from the reader's file to the words about it.

use super::child::{self, End, Limits};
use super::compile::{Compiled, Library, Program};
use super::desk::Desk;
use super::toolchain;
use kit::Exercise;
use kit::check::{EVENTS, Event, Figure, Row, Track};
use kit::show::Screen;
use serde::{Deserialize, Serialize};
use shardlab::error::BadInput;
use shardlab::files;
use std::process::Command;
use std::time::Duration;

/// The limits of the compiler and of the check.
///
/// A check may compute for SHARDLAB_CHECK_SECONDS, or for 6 s, and wait for the same time. A
/// fraction of a second is usually enough. The compiler usually takes a second or two, and may
/// compute five times as long as a check. While it waits for the linker it does not compute, so its
/// wait has only a loose limit.
fn limits() -> Result<[Limits; 2], BadInput> {
    let given = std::env::var("SHARDLAB_CHECK_SECONDS").unwrap_or("6".into());
    let seconds = given.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        let what = format!("SHARDLAB_CHECK_SECONDS={given} is not a number of seconds");
        BadInput::new(what, "give a whole number from 1 to 3600, or unset it")
    })?;
    let computing = Duration::from_secs(seconds);
    let check = Limits { computing, idle: computing, memory: 2 << 30 };
    let compiler = Limits { computing: 5 * computing, idle: 60 * computing, ..check };
    Ok([compiler, check])
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All claims hold.
    #[default]
    Solved,
    /// The reader has no file yet.
    NotBegun,
    /// A `todo!()` was reached.
    Unfinished,
    DoesNotCompile,
    /// The check cannot call the reader's code.
    DoesNotFit,
    /// A claim does not hold.
    Wrong,
    /// The reader's code, or a call that it made, returned an error.
    Failed,
    Panicked,
    /// Neither finished nor failed: an endless loop, or a wait.
    Endless,
    /// It used more memory than its limit.
    TooLarge,
    /// The process ended during the check.
    Ended,
}

/// A claim of a check, and whether it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub claim: String,
    /// None if it was not checked, because an earlier claim does not hold.
    pub holds: Option<bool>,
    pub rows: Vec<Row>,
    /// The numbers by which the check looks mistakes up, for the tests that record them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<f64>,
}

/// One check: its outcome, its findings, and the words about them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub outcome: Outcome,
    pub findings: Vec<Finding>,
    /// An explanation of why the exercise is not solved, or what would bring a solved one nearer to
    /// its targets.
    pub means: String,
    pub figures: Vec<Figure>,
    /// What the reader's program did in a step, and another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<Track>,
    /// rustc's errors or warnings.
    pub compiler: String,
    /// The output of the reader's code.
    pub printed: String,
}

impl Attempt {
    /// An attempt of which only the outcome is known, and its meaning.
    pub(super) fn new(outcome: Outcome, means: &str) -> Attempt {
        Attempt { outcome, means: means.into(), ..Attempt::default() }
    }

    /// The claim that does not hold, or the empty string.
    pub fn stuck_at(&self) -> &str {
        self.findings
            .iter()
            .find(|finding| finding.holds == Some(false))
            .map_or("", |finding| &finding.claim)
    }

    /// Compiles and runs the reader's file of the exercise.
    pub(super) fn make(
        library: &Library,
        screen: &Screen,
        desk: &Desk,
        exercise: &Exercise,
    ) -> Result<Attempt, BadInput> {
        let refuse = |what: &str, error: std::io::Error| {
            let help = "checks are built in the folder for temporary files; choose a different one:  export TMPDIR=…";
            BadInput::new(format!("cannot {what}: {error}"), help)
        };
        let [compiler, limits] = limits()?;
        let out =
            tempfile::tempdir().map_err(|error| refuse("make a folder for the check", error))?;
        let check = desk.check(exercise);
        let yours = [("exercise".to_string(), desk.mine(exercise))];
        let check = Program { name: "check", file: &check, optimized: false };
        let compiled = library.link(screen, desk, &yours, check, out.path(), compiler)?;
        let not_run =
            |outcome, compiler, means| Ok(Attempt { compiler, ..Attempt::new(outcome, means) });
        let (program, warnings) = match compiled {
            Compiled::Program(program, warnings) => (program, warnings),
            Compiled::NotYours(errors) => {
                let means =
                    "Your file does not compile yet. Begin with the compiler's first message.";
                return not_run(Outcome::DoesNotCompile, errors, means);
            }
            Compiled::Ended => {
                let means = "The compiler took too long, or too much memory: does your file include a file, or build a \
                             constant, without an end?";
                return not_run(Outcome::Endless, String::new(), means);
            }
            Compiled::NotTheCheck(errors) => {
                let means = "Your file compiles, but the check that calls it does not. Keep the exercise's names, arguments \
                             and fields as they were. `workbook reset` brings the original back, and keeps your file \
                             beside it.";
                return not_run(Outcome::DoesNotFit, errors, means);
            }
        };
        let events = out.path().join("events");
        std::fs::write(&events, "").map_err(|error| refuse("write the check's file", error))?;
        let mut command = Command::new(program);
        command.env(EVENTS, &events).env_remove("RUST_BACKTRACE");
        let (end, printed) =
            child::run(&mut command, limits).map_err(|error| refuse("start the check", error))?;
        let events = files::text(&events, files::LIST)
            .map_err(|error| refuse("read the check's file", error))?;
        // The last line may be incomplete if the program was ended.
        let events = events.lines().filter_map(|line| serde_json::from_str(line).ok());
        let attempt = told(events, &end, limits);
        if attempt.findings.is_empty() {
            return Err(toolchain::not_begun(&printed));
        }
        Ok(Attempt { compiler: warnings, printed, ..attempt })
    }
}

/// What a panic of Rust's own means, where its message does not say it to someone who knows other
/// languages.
fn about(message: &str) -> &'static str {
    if message == "attempt to subtract with overflow" {
        "\nAn unsigned number, such as a u64 or a usize, cannot be less than 0. `a.saturating_sub(b)` stops at 0, and \
         `a.checked_sub(b)` is None there."
    } else {
        ""
    }
}

/// The outcome that follows from a check's events.
fn told(events: impl Iterator<Item = Event>, end: &End, limits: Limits) -> Attempt {
    let mut attempt = Attempt::default();
    // The number of claims checked, whether one more was begun, and the last one's panic, error and
    // input.
    let mut looked_at = 0;
    let mut open = false;
    let mut panic = None;
    let mut failure = String::new();
    let mut given = String::new();
    let mut advice = String::new();
    for event in events {
        match event {
            Event::Claims(claims) => {
                let finding = |claim| Finding { claim, ..Finding::default() };
                attempt.findings = claims.into_iter().map(finding).collect();
            }
            Event::Begun => {
                open = true;
                panic = None;
                given = String::new();
            }
            // After a panic the other ranks' inputs do not matter.
            Event::Given(_) if panic.is_some() => {}
            Event::Given(input) => given = input,
            Event::Ended { rows, means, error, shows } => {
                let holds = error.is_empty() && rows.iter().all(|row| row.agrees);
                if let Some(finding) = attempt.findings.get_mut(looked_at) {
                    finding.holds = Some(holds);
                    finding.rows = rows;
                    finding.shows = shows;
                }
                attempt.means = means;
                failure = error;
                open = false;
                looked_at += 1;
            }
            Event::Figure(figure) => attempt.figures.push(figure),
            Event::Tracks(tracks) => attempt.tracks = tracks,
            Event::Advice(text) => advice = text,
            // Other ranks' panics follow from the first, or repeat it.
            Event::Panicked { .. } if panic.is_some() => {}
            Event::Panicked { message, at, given: input } => {
                panic = Some((message, at));
                if !input.is_empty() {
                    given = input;
                }
            }
        }
    }
    let hold = attempt.findings.iter().all(|finding| finding.holds == Some(true));
    if hold && !attempt.findings.is_empty() {
        attempt.means = advice;
        return attempt;
    }
    if open && let Some(finding) = attempt.findings.get_mut(looked_at) {
        finding.holds = Some(false);
    }
    let (outcome, what) = match (open, end, panic) {
        (true, End::TooLong, _) => {
            let seconds = limits.computing.as_secs();
            let what = format!(
                "It was still computing after {seconds} s. A fraction of a second is usually enough. Is there a loop \
                 without an end? (If ranks wait for each other forever, the check notices at once.)"
            );
            (Outcome::Endless, what)
        }
        (true, End::Stuck, _) => {
            let what = "It was not finished, and has not computed for a long time: what does your code wait for?";
            (Outcome::Endless, what.into())
        }
        (true, End::TooLarge, _) => {
            let limit = kit::show::bytes_binary(limits.memory as f64);
            let what = "of memory: does something grow without end?";
            (Outcome::TooLarge, format!("It used more than {limit} {what}"))
        }
        (_, _, Some((message, at))) => match message.strip_prefix("not yet implemented") {
            Some(todo) => (
                Outcome::Unfinished,
                format!("Write your code here, {at}:\n{}", todo.trim_start_matches(": ")),
            ),
            None => {
                (Outcome::Panicked, format!("It panicked at {at}:\n{message}{}", about(&message)))
            }
        },
        (false, _, None) if looked_at > 0 && failure.is_empty() => (Outcome::Wrong, String::new()),
        (false, _, None) if looked_at > 0 => {
            (Outcome::Failed, format!("It ended with an error:\n{failure}"))
        }
        (_, End::Exit(status), None) => (
            Outcome::Ended,
            format!("The process ended during the check ({status}): did your code end it?"),
        ),
        (false, _, None) => (Outcome::Ended, "The check did not begin.".into()),
    };
    attempt.outcome = outcome;
    if outcome != Outcome::Wrong {
        attempt.means = what;
        // For unwritten code the input does not matter.
        if !given.is_empty() && (open || outcome == Outcome::Panicked) {
            attempt.means += &format!("\nYour code was called with {given}.");
        }
    }
    attempt
}
