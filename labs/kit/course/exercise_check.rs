//! The parts of a check: claims, each with the evidence for it.
//!
//! A check is a small program. It is linked with the reader's code as the crate `exercise`, and the
//! workbook starts it. It goes through its claims in order, from the simplest on, and stops at the
//! first claim that does not hold. It writes its findings line by line into a file that the
//! workbook names. So the workbook knows them even if the reader's code never ends, and they do not
//! mix with the output of that code.

use super::labs_toml::Mistake;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use shardlab::launch;
use std::cell::RefCell;
use std::fmt::{Debug, Display};
use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// The variable that names the file for [`Event`]s; without it they go to stdout.
pub const EVENTS: &str = "SHARDLAB_CHECK_EVENTS";

/// A statement that must be true, and the function that finds out whether it is.
pub type Claim = (&'static str, fn(&mut Evidence) -> Result<()>);

/// One comparison of an expected and an actual value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The rank, step or element, for instance `rank 1, step 3`.
    pub at: String,
    pub expected: String,
    pub got: String,
    pub agrees: bool,
}

/// Something that a right answer can still do better or worse, such as bytes sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name, for instance `bytes per rank and step`.
    pub what: String,
    pub got: u64,
    /// The best possible value. Less is better.
    pub target: u64,
}

/// What a rank of some program did in a step: a row of a picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Track {
    /// Whose program it is, for instance `yours`.
    pub name: String,
    /// What it did, by the name of an [`Activity`](crate::show::Activity), and its first and
    /// last microsecond.
    pub spans: Vec<(String, u64, u64)>,
}

/// A moment of a check, one JSON line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// All claims that will be checked.
    Claims(Vec<String>),
    /// The check of the next claim has begun.
    Begun,
    /// The check of that claim has ended.
    Ended {
        rows: Vec<Row>,
        means: String,
        error: String,
        /// What [`Evidence::known`] was asked about.
        shows: Vec<f64>,
    },
    Figure(Figure),
    /// What two programs did in a step, side by side.
    Tracks(Vec<Track>),
    /// What a right answer could look at to come nearer to a figure's target.
    Advice(String),
    /// The input of the next call of the reader's code, for instance `step 5`.
    Given(String),
    /// A panic, and its source line: `my/lab03_batches.rs:12:5`, or
    /// `my/lab01_ring.rs:8:9, on rank 2`. `given` is the input of the call, if the thread has
    /// reported one.
    Panicked {
        message: String,
        at: String,
        given: String,
    },
}

thread_local! {
    /// The input of this thread's call of the reader's code. Ranks may be in different calls.
    static GIVEN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The evidence for or against a claim.
pub struct Evidence<'a> {
    events: &'a Events,
    claim: &'a str,
    mistakes: &'a [Mistake],
    rows: Vec<Row>,
    means: String,
    shows: Vec<f64>,
    figures: Vec<Figure>,
}

impl<'a> Evidence<'a> {
    fn new(claim: &'a str, mistakes: &'a [Mistake], events: &'a Events) -> Evidence<'a> {
        Evidence {
            events,
            claim,
            mistakes,
            rows: Vec::new(),
            means: String::new(),
            shows: Vec::new(),
            figures: Vec::new(),
        }
    }

    /// Reports the input of the next call of the reader's code, on the same thread. The reader sees
    /// it if the code panics or never returns. A check needs this where the claim itself does not
    /// name the input.
    pub fn given(&self, input: impl Display) {
        GIVEN.set(input.to_string());
        // If this cannot be written, the outcome cannot be written either.
        self.events.tell(&Event::Given(input.to_string())).ok();
    }

    /// Compares two values, and returns whether they are equal.
    pub fn same<T: PartialEq + Debug>(&mut self, at: impl Display, expected: T, got: T) -> bool {
        self.row(expected == got, at, format!("{expected:?}"), format!("{got:?}"))
    }

    /// [`Evidence::same`], where the expected value is what the reader was asked for: the evidence
    /// shows a `?` in its place.
    pub fn answer<T: PartialEq + Display>(&mut self, at: impl Display, right: T, got: T) -> bool {
        self.row(right == got, at, "?", got)
    }

    /// Compares two numbers, which may differ by rounding: by one part in a million, or by `1e-12`
    /// near 0.
    pub fn near(&mut self, at: impl Display, expected: f64, got: f64) -> bool {
        let near = is_near(expected, got);
        self.row(near, at, number(expected), number(got))
    }

    /// Records a comparison that the caller has made, and returns its result.
    pub fn row(
        &mut self,
        agrees: bool,
        at: impl Display,
        expected: impl Display,
        got: impl Display,
    ) -> bool {
        self.rows.push(Row {
            at: at.to_string(),
            expected: expected.to_string(),
            got: got.to_string(),
            agrees,
        });
        agrees
    }

    /// Whether nothing has disagreed so far.
    pub fn agrees(&self) -> bool {
        self.rows.iter().all(|row| row.agrees)
    }

    /// Explains to the reader why the claim does not hold. Only the first explanation counts, so
    /// recognised mistakes come first.
    pub fn means(&mut self, text: impl Display) {
        if self.means.is_empty() {
            self.means = text.to_string();
        }
    }

    /// [`Evidence::means`], if `sign` shows a certain mistake.
    pub fn means_if(&mut self, sign: bool, text: impl Display) {
        if sign {
            self.means(text);
        }
    }

    /// [`Evidence::means`], if a mistake of the check's `mistakes.toml` is recorded with these
    /// numbers at this claim. Give numbers that hardly depend on the processor, such as the ratios
    /// of the reader's numbers to the right ones: the tests have recorded them on one machine.
    pub fn known(&mut self, shows: &[f64]) {
        // No mistake is recorded whose numbers are not finite, and JSON has no such numbers.
        if !shows.iter().all(|number| number.is_finite()) {
            return;
        }
        self.shows = shows.to_vec();
        let is_it = |known: &&Mistake| known.is_shown(self.claim, shows, Mistake::WITHIN);
        if let Some(known) = self.mistakes.iter().find(is_it) {
            self.means(&known.says);
        }
    }

    /// Draws what programs did in a step: the reader's, and one to compare it with.
    pub fn draw(&self, tracks: Vec<Track>) {
        // If this cannot be written, the outcome cannot be written either.
        self.events.tell(&Event::Tracks(tracks)).ok();
    }

    /// Says what to look at if a figure has missed its target. The reader sees it once the exercise
    /// is solved.
    pub fn advise(&self, text: impl Display) {
        // If this cannot be written, the outcome cannot be written either.
        self.events.tell(&Event::Advice(text.to_string())).ok();
    }

    /// Records a figure that the reader sees once the exercise is solved.
    pub fn figure(&mut self, what: &str, got: u64, target: u64) {
        self.figures.push(Figure { what: what.into(), got, target });
    }
}

/// Whether two numbers differ by no more than rounding, as in [`Evidence::near`].
pub fn is_near(expected: f64, got: f64) -> bool {
    // Within a share of infinity is everything.
    expected.is_finite() && (expected - got).abs() <= 1e-12 + 1e-6 * expected.abs()
}

/// A number with enough digits to distinguish two that are not near.
pub fn number(x: f64) -> String {
    if x == 0.0 {
        "0".into()
    } else {
        crate::show::general(x, 7)
    }
}

/// A check program's `main`: checks the claims in order, up to the first that does not hold.
pub fn run(claims: &[Claim]) -> ExitCode {
    run_knowing("", claims)
}

/// [`run`], where [`Evidence::known`] looks mistakes up in the text of a `mistakes.toml`.
pub fn run_knowing(mistakes: &str, claims: &[Claim]) -> ExitCode {
    let look = || {
        let events = Arc::new(Events::open()?);
        let panics = events.clone();
        std::panic::set_hook(Box::new(move |info| panics.panicked(info)));
        look_at(claims, &Mistake::all(mistakes)?, &events)
    };
    match look() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => launch::main(|| Err(error)),
    }
}

/// Returns whether all claims hold.
fn look_at(claims: &[Claim], mistakes: &[Mistake], events: &Events) -> Result<bool> {
    events.tell(&Event::Claims(claims.iter().map(|(what, _)| what.to_string()).collect()))?;
    for (claim, look) in claims {
        events.tell(&Event::Begun)?;
        GIVEN.take();
        let mut evidence = Evidence::new(claim, mistakes, events);
        // After a panic nothing reads the state that it may have left incomplete.
        let outcome = catch_unwind(AssertUnwindSafe(|| look(&mut evidence)));
        let error = match outcome {
            Ok(Ok(())) if evidence.rows.is_empty() => "the check has compared nothing".into(),
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "panicked".into(),
        };
        let holds = evidence.agrees() && error.is_empty();
        for figure in std::mem::take(&mut evidence.figures) {
            events.tell(&Event::Figure(figure))?;
        }
        let Evidence { rows, means, shows, .. } = evidence;
        events.tell(&Event::Ended { rows, means, error, shows })?;
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The file, or stdout, that receives the events.
pub(super) struct Events(Mutex<Box<dyn Write + Send>>);

impl Events {
    fn open() -> Result<Events> {
        let out: Box<dyn Write + Send> = match std::env::var_os(EVENTS) {
            Some(path) => {
                Box::new(File::options().append(true).open(&path).context("the workbook's file")?)
            }
            None => Box::new(std::io::stdout()),
        };
        Ok(Events(Mutex::new(out)))
    }

    fn tell(&self, event: &Event) -> Result<()> {
        let line = serde_json::to_string(event)? + "\n";
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Flush at once: the process may be ended at any moment.
        Ok(out.write_all(line.as_bytes()).and_then(|()| out.flush())?)
    }

    /// Reports a panic. The first one is the cause: panics of other ranks follow from it, or repeat
    /// it.
    fn panicked(&self, info: &PanicHookInfo) {
        let message = info.payload_as_str().unwrap_or("(no message)").to_string();
        let mut at = info.location().map_or(String::new(), ToString::to_string);
        if let Some(rank) = std::thread::current().name().filter(|name| name.starts_with("rank ")) {
            at += &format!(", on {rank}");
        }
        // If this fails, there is no way left to report it.
        self.tell(&Event::Panicked { message, at, given: GIVEN.with_borrow(String::clone) })
            .ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a check's run tells, and whether its claims held.
    fn events(claims: &[Claim]) -> (bool, Vec<Event>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let out: Box<dyn Write + Send> = Box::new(file.reopen().unwrap());
        let held = look_at(claims, &[], &Events(Mutex::new(out))).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        (held, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn no_number_is_near_infinity() {
        assert!(is_near(2.0, 2.000_001) && !is_near(2.0, 2.000_01));
        assert!(!is_near(f64::INFINITY, 2.0) && !is_near(f64::NEG_INFINITY, 2.0));
        assert!(!is_near(2.0, f64::INFINITY) && !is_near(f64::NAN, f64::NAN));
    }

    #[test]
    fn a_check_stops_at_the_first_claim_that_does_not_hold() {
        let claims: [Claim; 3] = [
            ("one is one", |evidence| {
                evidence.figure("steps", 3, 2);
                evidence.same("here", 1, 1);
                Ok(())
            }),
            ("two is two", |evidence| {
                evidence.same("rank 0", 2, 2);
                evidence.same("rank 1", 2, 3);
                evidence.means_if(false, "not this");
                evidence.means_if(true, "the first sign");
                evidence.means("anything else");
                Ok(())
            }),
            ("three is three", |_| unreachable!()),
        ];
        let (held, events) = events(&claims);
        let row = |at: &str, expected: &str, got: &str| Row {
            at: at.into(),
            expected: expected.into(),
            got: got.into(),
            agrees: expected == got,
        };
        let ended = |rows, means: &str| Event::Ended {
            rows,
            means: means.into(),
            error: String::new(),
            shows: Vec::new(),
        };
        assert!(!held);
        assert_eq!(
            events,
            [
                Event::Claims(claims.iter().map(|claim| claim.0.into()).collect()),
                Event::Begun,
                Event::Figure(Figure { what: "steps".into(), got: 3, target: 2 }),
                ended(vec![row("here", "1", "1")], ""),
                Event::Begun,
                ended(vec![row("rank 0", "2", "2"), row("rank 1", "2", "3")], "the first sign"),
            ]
        );
    }

    #[test]
    fn an_answer_stays_with_the_check() {
        let (_, events) = events(&[("two of them", |evidence| {
            assert!(evidence.answer("a", 26, 26) && !evidence.answer("b", 26, 8));
            Ok(())
        })]);
        let Event::Ended { rows, .. } = &events[2] else {
            panic!("{events:?}")
        };
        assert!(rows.iter().all(|row| row.expected == "?"));
    }

    #[test]
    fn a_recorded_mistake_is_looked_up() {
        let known = |shows| Mistake { claim: "one is one".into(), says: "told".into(), shows };
        let mistakes = [known(vec![]), known(vec![1.0, 4.0])];
        let events = Events(Mutex::new(Box::new(std::io::sink())));
        let told = |claim, shows: &[f64]| {
            let mut evidence = Evidence::new(claim, &mistakes, &events);
            evidence.known(shows);
            evidence.means("a guess");
            evidence.means
        };
        assert_eq!(told("one is one", &[1.0, 4.00001]), "told");
        assert_eq!(told("another claim", &[1.0, 4.0]), "a guess");
        for others in [&[1.0, 4.0001][..], &[1.0, -4.0], &[1.0], &[], &[1.0, f64::NAN]] {
            assert_eq!(told("one is one", others), "a guess");
        }
    }

    #[test]
    fn a_claim_without_evidence_does_not_hold() {
        assert!(!events(&[("nothing", |_| Ok(()))]).0);
        assert!(!events(&[("an error", |_| anyhow::bail!("no"))]).0);
    }

    #[test]
    fn near_is_what_rounding_does() {
        assert!(is_near(1e-3, 1e-3 + 1e-10) && is_near(0.0, 1e-13) && is_near(-5.0, -5.000001));
        assert!(!is_near(1e-3, 1.00001e-3) && !is_near(0.0, 1e-9) && !is_near(1.0, f64::NAN));
    }
}
