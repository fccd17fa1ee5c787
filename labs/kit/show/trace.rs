//! A timeline as a file for a trace viewer, in Chrome's format, which ui.perfetto.dev and
//! chrome://tracing read.
//!
//! Each rank is a process with a thread for each of its tracks, and a span is a complete event
//! ("ph": "X") with microseconds since the trace began (Google, *Trace Event Format*).

use serde_json::json;
use shardlab::named::named;
use std::borrow::Cow;

named! {
    /// A row of the viewer; spans of one track do not overlap.
    pub enum Track {
        Compute = "compute",
        Communication = "communication",
        /// Parameters that are gathered: a second kind of communication, at the same time as the
        /// first.
        Gathers = "gathers",
        Waiting = "waiting",
        /// Sends and receives between the stages of a pipeline.
        Messages = "messages",
    }
}

/// An interval of one rank's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub track: Track,
    pub name: Cow<'static, str>,
    /// The training step, as log lines count it.
    pub step: usize,
    /// Seconds since the trace began.
    pub start: f64,
    pub end: f64,
}

/// One rank's spans as events: JSON values with commas between them. [`document`] makes a file of
/// all ranks'.
pub fn events(rank: usize, spans: &[Span]) -> String {
    let name = |what: &str, tid: usize, name: String| {
        json!({ "name": what, "ph": "M", "pid": rank, "tid": tid, "args": { "name": name } })
            .to_string()
    };
    let mut events = vec![name("process_name", 0, format!("rank {rank}"))];
    let thread = |track: Track| name("thread_name", track as usize, track.name().to_string());
    events.extend(Track::ALL.map(thread));
    for span in spans {
        // Both ends are rounded, and the duration lies between them: so spans that touch do not
        // overlap.
        let start = tenths(span.start);
        let end = tenths(span.end).max(start);
        let event = json!({
            "name": span.name, "cat": span.track.name(), "ph": "X", "ts": start as f64 / 10.0,
            "dur": (end - start) as f64 / 10.0, "pid": rank, "tid": span.track as usize,
            "args": { "step": span.step },
        });
        events.push(event.to_string());
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

/// Tenths of a microsecond, as precise as a clock.
fn tenths(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e7).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_trace_is_json_with_a_thread_for_each_track() {
        let span = |track, name, start: f64| Span {
            track,
            name: Cow::Borrowed(name),
            step: 3,
            start,
            end: start + 0.5,
        };
        let ranks = [
            events(
                0,
                &[span(Track::Compute, "forward", 0.0), span(Track::Waiting, "all-reduce", 0.25)],
            ),
            events(1, &[]),
        ];
        let trace: Value = serde_json::from_str(&document(&ranks)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 2 * 6 + 2);
        assert_eq!(events[0]["args"]["name"], "rank 0");
        assert_eq!(
            events[6],
            json!({ "name": "forward", "cat": "compute", "ph": "X", "ts": 0.0, "dur": 500000.0, "pid": 0, "tid": 0, "args": { "step": 3 } })
        );
        assert_eq!((&events[7]["tid"], &events[7]["ts"]), (&json!(3), &json!(250000.0)));
        assert_eq!((&events[4]["args"]["name"], &events[4]["tid"]), (&json!("waiting"), &json!(3)));
    }

    /// Ends that lie between two tenths of a microsecond, where a duration that is rounded for
    /// itself reaches too far.
    #[test]
    fn spans_that_touch_do_not_overlap() {
        let ends: Vec<f64> = (0..100).map(|i| f64::from(i) * 1.370_000_3e-5).collect();
        let span = |pair: &[f64]| Span {
            track: Track::Compute,
            name: Cow::Borrowed("forward"),
            step: 1,
            start: pair[0],
            end: pair[1],
        };
        let spans: Vec<Span> = ends.windows(2).map(span).collect();
        let trace: Value = serde_json::from_str(&document(&[events(0, &spans)])).unwrap();
        let tenths = |value: &Value| (10.0 * value.as_f64().unwrap()).round() as u64;
        let events = trace["traceEvents"].as_array().unwrap();
        let spans = events.iter().filter(|event| event["ph"] == "X");
        let times = spans.map(|span| (tenths(&span["ts"]), tenths(&span["dur"])));
        let times: Vec<(u64, u64)> = times.collect();
        assert_eq!(times.len(), 99);
        for pair in times.windows(2) {
            assert_eq!(pair[0].0 + pair[0].1, pair[1].0);
        }
    }
}
