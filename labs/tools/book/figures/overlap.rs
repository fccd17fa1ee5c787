//! Averaging gradients during the backward pass.

use kit::show::{Activity, Interval, Timeline};

/// A step without overlap and with it: four buckets, a backward pass of 8 s, and 1.6 s on the
/// network for each bucket.
pub(super) fn picture() -> Timeline<'static> {
    const FORWARD: f64 = 4.0;
    const BUCKETS: usize = 4;
    const COMPUTE: f64 = 2.0;
    const SEND: f64 = 1.6;
    let mut rows = Vec::new();
    for overlaps in [false, true] {
        let mut rank = Vec::new();
        let mut network = Vec::new();
        let add = |row: &mut Vec<Interval>, activity, start: f64, seconds: f64| {
            row.push(Interval { activity, start, end: start + seconds });
            start + seconds
        };
        let mut now = add(&mut rank, Activity::FORWARD, 0.0, FORWARD);
        let mut free: f64 = 0.0;
        for _ in 0..BUCKETS {
            now = add(&mut rank, Activity::BACKWARD, now, COMPUTE);
            free = add(&mut network, Activity::ALL_REDUCE, free.max(now), SEND);
            if !overlaps {
                now = add(&mut rank, Activity::WAITING, now, SEND);
            }
        }
        add(&mut rank, Activity::WAITING, now, (free - now).max(0.0));
        add(&mut rank, Activity::OPTIMIZER, free, 1.0);
        let name = if overlaps { "with overlap" } else { "without" };
        rows.extend([(name.to_string(), rank), ("network".to_string(), network)]);
    }
    Timeline {
        title: "A step with four buckets, without overlap and with it".into(),
        rows,
        marks: Vec::new(),
        axis: "time",
    }
}
