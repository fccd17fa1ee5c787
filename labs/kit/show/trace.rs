//! A timeline as a file for a trace viewer, in Chrome's format, which ui.perfetto.dev and chrome://tracing read.
//!
//! Each rank is a process with a thread for each of its tracks, and a span is a complete event ("ph": "X") with microseconds
//! since the trace began (Google, *Trace Event Format*).

use serde::Serialize;
use serde_json::{Value, json};

/// A row of the viewer; spans of one track do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    Compute,
    Communication,
    /// Parameters that are gathered: a second kind of communication, at the same time as the first.
    Gathers,
    Waiting,
}

const TRACKS: [(Track, &str); 4] = [
    (Track::Compute, "compute"),
    (Track::Communication, "communication"),
    (Track::Gathers, "gathers"),
    (Track::Waiting, "waiting"),
];

/// An interval of one rank's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub track: Track,
    pub name: &'static str,
    /// The training step, as log lines count it.
    pub step: usize,
    /// Seconds since the trace began.
    pub start: f64,
    pub end: f64,
}

#[derive(Serialize)]
struct Event {
    name: &'static str,
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: usize,
    tid: usize,
    args: Value,
}

/// One rank's spans as events: JSON values with commas between them. [`document`] makes a file of all ranks'.
pub fn events(rank: usize, spans: &[Span]) -> String {
    let name = |what: &str, tid: usize, name: String| {
        json!({ "name": what, "ph": "M", "pid": rank, "tid": tid, "args": { "name": name } })
            .to_string()
    };
    let mut events = vec![name("process_name", 0, format!("rank {rank}"))];
    events.extend(
        TRACKS
            .iter()
            .enumerate()
            .map(|(tid, (_, track))| name("thread_name", tid, track.to_string())),
    );
    for span in spans {
        let tid = TRACKS
            .iter()
            .position(|(track, _)| *track == span.track)
            .unwrap_or_default();
        let event = Event {
            name: span.name,
            cat: TRACKS[tid].1,
            ph: "X",
            ts: microseconds(span.start),
            dur: microseconds(span.end - span.start),
            pid: rank,
            tid,
            args: json!({ "step": span.step }),
        };
        // Numbers and short names: nothing that JSON could not hold.
        events.push(serde_json::to_string(&event).unwrap_or_default());
    }
    events.join(",\n")
}

/// The file: the [`events`] of every rank.
pub fn document(ranks: &[String]) -> String {
    format!(
        "{{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{}\n]}}\n",
        ranks.join(",\n")
    )
}

/// To a tenth of a microsecond, as precise as a clock.
fn microseconds(seconds: f64) -> f64 {
    (seconds.max(0.0) * 1e7).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_json_with_a_thread_for_each_track() {
        let span = |track, name, start: f64| Span {
            track,
            name,
            step: 3,
            start,
            end: start + 0.5,
        };
        let ranks = [
            events(
                0,
                &[
                    span(Track::Compute, "forward", 0.0),
                    span(Track::Waiting, "all-reduce", 0.25),
                ],
            ),
            events(1, &[]),
        ];
        let trace: Value = serde_json::from_str(&document(&ranks)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 2 * 5 + 2);
        assert_eq!(events[0]["args"]["name"], "rank 0");
        assert_eq!(
            events[5],
            json!({ "name": "forward", "cat": "compute", "ph": "X", "ts": 0.0, "dur": 500000.0, "pid": 0, "tid": 0, "args": { "step": 3 } })
        );
        assert_eq!(
            (&events[6]["tid"], &events[6]["ts"]),
            (&json!(3), &json!(250000.0))
        );
        assert_eq!(
            (&events[4]["args"]["name"], &events[4]["tid"]),
            (&json!("waiting"), &json!(3))
        );
    }
}
