//! The explorer of overlap: the backward pass of a step, and the link that averages its gradients
//! bucket by bucket.
//!
//! The figure's script (`book/figures/exposed.js`) has the same formulas, and book/browse.py
//! compares both.

use itertools::iproduct;
use kit::show::{Activity, Interval, Timeline, seconds};
use planner::tokens_that_hide;
use serde_json::{Value, json};
use shardlab::comm::{CallKind, Link};
use shardlab::plan::exposed;

/// Bytes of a gradient, in 16 bits.
const GRADIENT: usize = 2;

/// What a reader can choose.
#[derive(Clone, Copy)]
struct Step {
    parameters: usize,
    /// Tokens that each rank computes.
    tokens: usize,
    /// Operations per second of each rank.
    flops: f64,
    ranks: usize,
    link: Link,
    /// Bytes of a bucket; the last one has the rest.
    bucket: usize,
}

/// The first picture: one billion parameters, near the point from which on only the last bucket is
/// exposed.
const FIRST: Step = Step {
    parameters: 1_000_000_000,
    tokens: 8192,
    flops: 4e14,
    ranks: 16,
    link: Link { latency: 14e-6, bandwidth: 5e10 },
    bucket: 100_000_000,
};

impl Step {
    fn backward(&self) -> f64 {
        4.0 * self.parameters as f64 * self.tokens as f64 / self.flops
    }

    /// The share of the backward pass that is over when each bucket is complete, and the bucket's
    /// seconds on the link.
    fn buckets(&self) -> Vec<(f64, f64)> {
        let elements = self.bucket / GRADIENT;
        let count = self.parameters.div_ceil(elements);
        let of = |i: usize| {
            let end = self.parameters.min((i + 1) * elements);
            let bytes = GRADIENT * (end - i * elements);
            let took = self.link.collective_seconds(CallKind::AllReduce, self.ranks, bytes);
            (end as f64 / self.parameters as f64, took)
        };
        (0..count).map(of).collect()
    }

    fn json(&self) -> Value {
        let backward = self.backward();
        let buckets = self.buckets();
        let waits = exposed(backward, buckets.iter().copied());
        let last = buckets.last().map_or(0.0, |bucket| bucket.1);
        let link: f64 = buckets.iter().map(|bucket| bucket.1).sum();
        let hides = tokens_that_hide(GRADIENT as f64, self.ranks, self.flops, self.link.bandwidth);
        json!({
            "parameters": self.parameters, "tokens": self.tokens, "flops": self.flops, "ranks": self.ranks,
            "latency": self.link.latency, "bandwidth": self.link.bandwidth, "bucket": self.bucket,
            "count": buckets.len(), "numbers": [backward, link, last, waits, hides],
            "words": [seconds(backward), seconds(link), seconds(waits)],
        })
    }
}

/// The library's figures for some of the steps that a reader can choose.
pub(super) fn numbers() -> Vec<Value> {
    let models = [100_000_000, 1_000_000_000, 70_000_000_000];
    let jobs = [(2, 5e13), (16, 4e14), (64, 4e14), (1024, 1.6e15)];
    let links = [(0.0, 1.25e9), (14e-6, 5e10), (1e-4, 4.5e11)];
    let buckets = [25_000_000, 100_000_000, 5_000_000_000];
    let of = |(parameters, tokens, (ranks, flops), (latency, bandwidth), bucket)| {
        let link = Link { latency, bandwidth };
        Step { parameters, tokens, flops, ranks, link, bucket }.json()
    };
    iproduct!(models, [256, 8192, 131_072], jobs, links, buckets).map(of).collect()
}

/// The first picture, which stays where scripts do not run.
pub(super) fn picture() -> Timeline<'static> {
    let backward = FIRST.backward();
    let mut link = Vec::new();
    let mut rank = Vec::new();
    let mut before = 0.0;
    let mut free: f64 = 0.0;
    for (ready, took) in FIRST.buckets() {
        let ready = ready * backward;
        rank.push(Interval { activity: Activity::BACKWARD, start: before, end: ready });
        before = ready;
        let start = free.max(ready);
        free = start + took;
        link.push(Interval { activity: Activity::ALL_REDUCE, start, end: free });
    }
    rank.push(Interval { activity: Activity::WAITING, start: backward, end: free });
    Timeline {
        title: format!(
            "{} buckets of 100 MB: the rank waits {} after a backward pass of {}",
            link.len(),
            seconds(free - backward),
            seconds(backward)
        ),
        rows: vec![("rank".into(), rank), ("link".into(), link)],
        marks: vec![(0.0, "0 s".into()), (backward, seconds(backward))],
        axis: "time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_picture_is_near_the_point_where_the_link_keeps_up() {
        let first = FIRST.json();
        let hides = first["numbers"][4].as_f64().unwrap();
        assert_eq!((first["count"].as_u64(), hides), (Some(20), 7500.0));
        // Latencies, which the formula leaves out, make the link a little too slow.
        let text = first["words"].to_string();
        assert_eq!(text, r#"["81.9 ms","83.4 ms","5.58 ms"]"#);
        assert_eq!(picture().rows[1].1.len(), 20);
    }
}
