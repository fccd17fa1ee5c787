//! A trace read again: what each rank did when, as a lab's `--trace` or `torch.profiler` wrote it
//! down.
//!
//! A span's name says what it is. PyTorch's spans are many and nested, and only those below are
//! read. Its backward pass is the union of the operations that `autograd` evaluates: `backward()`
//! itself also waits for the last all-reduces.

use super::activity::{Activity, Interval};
use anyhow::{Context, Result};
use serde_json::Value;

/// How names begin, and what they are.
const NAMES: [(&str, Activity); 10] = [
    ("data", Activity::DATA),
    ("enumerate(DataLoader)", Activity::DATA),
    ("forward", Activity::FORWARD),
    ("DistributedDataParallel.forward", Activity::FORWARD),
    ("backward", Activity::BACKWARD),
    ("autograd::engine::evaluate_function", Activity::BACKWARD),
    ("all-reduce", Activity::ALL_REDUCE),
    ("gloo:all_reduce", Activity::ALL_REDUCE),
    ("optimizer", Activity::OPTIMIZER),
    ("Optimizer.step", Activity::OPTIMIZER),
];

/// What one rank did, in the order in which it began.
///
/// # Errors
/// If the trace is no JSON with Chrome's `traceEvents`, or an event that counts has no time.
pub fn of_rank(trace: &str, rank: usize) -> Result<Vec<Interval>> {
    let trace: Value = serde_json::from_str(trace)?;
    let events = trace["traceEvents"].as_array().context("a trace has traceEvents")?;
    let mut intervals = Vec::new();
    for event in events.iter().filter(|event| event["pid"] == rank && event["ph"] == "X") {
        let name = event["name"].as_str().unwrap_or_default();
        let Some(&(_, activity)) = NAMES.iter().find(|(begin, _)| name.starts_with(begin)) else {
            continue;
        };
        // Microseconds in the file.
        let seconds = |key: &str| event[key].as_f64().map(|micro| micro / 1e6).context("a time");
        let start = seconds("ts")?;
        intervals.push(Interval { activity, start, end: start + seconds("dur")? });
    }
    intervals.sort_by(|a, b| a.start.total_cmp(&b.start));
    Ok(intervals)
}

/// The seconds in which at least one of these intervals is under way. They are in the order in
/// which they begin.
pub fn union<'a>(intervals: impl IntoIterator<Item = &'a Interval>) -> f64 {
    let mut seconds = 0.0;
    let mut free = f64::NEG_INFINITY;
    for interval in intervals {
        seconds += (interval.end - interval.start.max(free)).max(0.0);
        free = free.max(interval.end);
    }
    seconds
}

/// The seconds in which a rank only communicates: all that it does, less its computation.
pub fn exposed(rank: &[Interval]) -> f64 {
    union(rank) - union(rank.iter().filter(|did| did.activity != Activity::ALL_REDUCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exposed_is_what_no_computation_covers() {
        let event = |name: &str, pid: usize, ts: f64, dur: f64| json!({ "ph": "X", "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur });
        let trace = json!({ "traceEvents": [
            { "ph": "M", "name": "process_name", "pid": 0, "args": { "name": "rank 0" } },
            event("gloo:all_reduce", 0, 50e3, 30e3),
            event("gloo:all_reduce", 0, 70e3, 20e3),
            event("DistributedDataParallel.forward", 0, 0.0, 20e3),
            event("aten::mm", 0, 0.0, 90e3),
            event("autograd::engine::evaluate_function: MmBackward0", 0, 20e3, 40e3),
            event("forward", 1, 0.0, 1e3),
            event("Optimizer.step#SGD.step", 0, 95e3, 5e3),
        ] });
        let rank = of_rank(&trace.to_string(), 0).unwrap();
        assert_eq!((rank.len(), rank[0].activity), (5, Activity::FORWARD));
        // Two all-reduces overlap, and the backward pass hides 10 ms of the first.
        assert!((exposed(&rank) - 0.030).abs() < 1e-9, "{rank:?}");
        assert!((union(&rank) - 0.095).abs() < 1e-9);
        assert_eq!(exposed(&of_rank(&trace.to_string(), 1).unwrap()), 0.0);
        assert!(of_rank("[]", 0).is_err() && of_rank("{", 0).is_err());
    }
}
