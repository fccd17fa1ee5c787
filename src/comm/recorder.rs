//! The flight recorder: the last calls of a rank, for when something goes wrong.
//!
//! The recorder is always on. The book's page "Speed" has its share of a 1 KiB all-reduce between
//! two threads.

use super::Call;
use super::meter::lock;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::VecDeque;
use std::fmt;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many calls a recorder keeps.
const KEPT: usize = 64;

/// One rank's last calls. Each recorder has its own cache lines, so that ranks do not slow each
/// other down.
#[repr(align(128))]
pub(crate) struct Recorder(Mutex<Log>);

struct Log {
    began: Instant,
    /// Calls so far, over all groups.
    calls: u64,
    /// The latest entries, at most [`KEPT`].
    entries: VecDeque<RecordedCall>,
}

/// The time from when a rank enters a call until it leaves it. A rank enters a non-blocking call
/// twice: to start, and to wait.
#[derive(Clone, Copy)]
pub(super) struct RecordedCall {
    pub call: Call,
    /// This rank's call number, from 1.
    pub number: u64,
    pub start: Instant,
    /// When the rank left the call, and whether the call succeeded.
    pub end: Option<(Instant, bool)>,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder(Mutex::new(Log {
            began: Instant::now(),
            calls: 0,
            entries: VecDeque::with_capacity(KEPT),
        }))
    }

    /// The rank enters a call.
    pub fn begin(&self, call: &Call, start: Instant) {
        let mut log = lock(&self.0);
        log.calls += 1;
        let number = log.calls;
        log.write(RecordedCall { call: *call, number, start, end: None });
    }

    /// The rank enters call `number` again, which it has started before, to wait for its result.
    pub fn resume(&self, call: &Call, number: u64, start: Instant) {
        lock(&self.0).write(RecordedCall { call: *call, number, start, end: None });
    }

    /// The rank leaves its current call.
    pub fn end(&self, end: Instant, well: bool) {
        if let Some(entry) = lock(&self.0).entries.back_mut() {
            entry.end = Some((end, well));
        }
    }

    /// The latest call, if there was one.
    pub fn last(&self) -> Option<RecordedCall> {
        lock(&self.0).entries.back().copied()
    }

    /// The number of the latest call.
    pub fn number(&self) -> u64 {
        self.last().map_or(0, |entry| entry.number)
    }

    /// The number of the call that the rank is in, if it is in one.
    pub fn current(&self) -> Option<u64> {
        self.last().filter(|entry| entry.end.is_none()).map(|entry| entry.number)
    }

    /// How long the rank has been computing since its latest call. Inside a call: how long it
    /// computed before.
    pub fn computed(&self) -> Duration {
        let log = lock(&self.0);
        let end = |entry: &RecordedCall| entry.end.map(|(end, _)| end);
        let mut latest = log.entries.iter().rev();
        match latest.next() {
            Some(RecordedCall { end: None, start, .. }) => {
                *start - latest.next().and_then(end).unwrap_or(log.began)
            }
            last => last.and_then(end).unwrap_or(log.began).elapsed(),
        }
    }

    /// Adds the calls to a file, one per line, the oldest first.
    fn write(&self, rank: usize, file: &mut impl Write) -> std::io::Result<()> {
        let log = lock(&self.0);
        let now = Instant::now();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix = |at: Instant| clock.as_secs_f64() - (now - at).as_secs_f64();
        for &RecordedCall { call, number, start, end } in &log.entries {
            let state = match end {
                None => "in it",
                Some((_, true)) => "done",
                Some((_, false)) => "failed",
            };
            let line = json!({
                "rank": rank, "number": number, "call": call.kind.name(), "dtype": call.dtype.name(), "len": call.len,
                "op": call.op.map(|op| op.name()), "group": call.group, "peer": call.peer.map(|peer| peer.in_world),
                "tag": call.tag, "label": call.label, "at": format!("{}:{}", call.at.file(), call.at.line()),
                "start_unix_s": unix(start), "end_unix_s": end.map(|(end, _)| unix(end)), "state": state,
            });
            writeln!(file, "{line}")?;
        }
        Ok(())
    }
}

/// The file with the last calls of a run's ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlightFile {
    pub path: PathBuf,
    /// Why it could not be written.
    pub error: Option<String>,
}

/// The last line of an error: where the ranks' last calls are, or why they could not be written.
impl fmt::Display for FlightFile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let path = self.path.display();
        match &self.error {
            None => write!(f, "\n      the last {KEPT} calls of every rank are in {path}"),
            Some(error) => {
                write!(f, "\n      the ranks' last calls could not be written to {path}: {error}")
            }
        }
    }
}

/// Writes the last calls of these ranks to a file.
pub(super) fn save<'a>(
    path: &Path,
    ranks: impl IntoIterator<Item = (usize, &'a Arc<Recorder>)>,
) -> FlightFile {
    let write = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut out = BufWriter::new(crate::files::create(path)?);
        for (rank, recorder) in ranks {
            recorder.write(rank, &mut out)?;
        }
        out.flush()
    };
    let error = write().err().map(|error| error.to_string());
    FlightFile { path: path.to_path_buf(), error }
}

impl Log {
    fn write(&mut self, entry: RecordedCall) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}
