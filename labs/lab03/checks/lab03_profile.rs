//! The check of lab03-profile: what it expects is computed from the traces.

use exercise::read_off;
use kit::check::{Evidence, run};
use kit::show::profile::{exposed, of_rank, union};
use kit::show::{Activity, Interval};
use shardlab::Result;
use std::process::ExitCode;

const EXPOSED: &str = include_str!("../traces/exposed.json");
const LATE: &str = include_str!("../traces/late.json");
const BUCKET: &str = include_str!("../traces/bucket.json");

pub fn main() -> ExitCode {
    run(&[
        ("A: how long rank 0 only communicates", milliseconds),
        ("B: the rank that the other waits for", rank),
        ("C: the bucket that others wait for", bucket),
    ])
}

/// A rank's all-reduces, in the order in which they begin.
fn all_reduces(trace: &str, rank: usize) -> Result<Vec<Interval>> {
    let mut did = of_rank(trace, rank)?;
    did.retain(|did| did.activity == Activity::ALL_REDUCE);
    Ok(did)
}

fn milliseconds(evidence: &mut Evidence) -> Result<()> {
    let [got, ..] = read_off();
    let all = all_reduces(EXPOSED, 0)?;
    let did = of_rank(EXPOSED, 0)?;
    let is = |seconds: f64, got: f64| (got - 1e3 * seconds).abs() <= 0.1 * 1e3 * seconds;
    let right = exposed(&did);
    evidence.row(is(right, got as f64), "A: ms", "?", got);
    let got = got as f64;
    evidence.means_if(
        is(right, got / 1e3),
        "These are microseconds, in which a trace's file counts. 1,000 of them are a millisecond.",
    );
    evidence.means_if(
        is(union(&all), got),
        "This is all of the communication. The backward pass hides the part of it that lies beside it.",
    );
    evidence.means_if(
        is(union(&all) - right, got),
        "This is the part that the backward pass hides. The rest is exposed.",
    );
    evidence.means_if(
        is(union(&did), got),
        "This is the whole step. For a part of it the rank computes.",
    );
    evidence.means_if(
        all.iter().any(|one| is(one.end - one.start, got)),
        "This is one all-reduce. Several of them come after the backward pass.",
    );
    evidence.means(
        "Where does the backward pass end in A, and where does the last all-reduce end? Between the two the rank computes next to \
         nothing.",
    );
    Ok(())
}

fn rank(evidence: &mut Evidence) -> Result<()> {
    let [_, got, _] = read_off();
    let [first, second] = [union(&all_reduces(LATE, 0)?), union(&all_reduces(LATE, 1)?)];
    let right = usize::from(second < first);
    evidence.answer("B: the rank", right, got);
    evidence.means_if(got > 1, "The ranks are 0 and 1.");
    let [most, least] = [first.max(second), first.min(second)].map(|seconds| 1e3 * seconds);
    evidence.means(format!(
        "This rank waits. It is in all-reduces for {most:.0} ms, the other one for {least:.0}: an all-reduce begins when a rank calls it, \
         and goes on until the last rank has come. The late rank is in it for the shortest time.",
    ));
    Ok(())
}

fn bucket(evidence: &mut Evidence) -> Result<()> {
    let [.., got] = read_off();
    let all = all_reduces(BUCKET, 0)?;
    let gap = |i: usize| all[i].start - all[i - 1].start;
    let last_in = |key: fn(&Interval) -> f64| {
        (0..all.len()).max_by(|&a, &b| key(&all[a]).total_cmp(&key(&all[b])))
    };
    let right = (1..all.len()).max_by(|&a, &b| gap(a).total_cmp(&gap(b)));
    let right = right.unwrap_or_default();
    evidence.answer("C: the bucket", right, got);
    evidence.means_if(
        got >= all.len(),
        format!("There are {} buckets. The first is bucket 0.", all.len()),
    );
    evidence.means_if(
        got < right,
        "This bucket starts while the backward pass goes on, one layer after the one before it. Where is the gap?",
    );
    evidence.means_if(
        last_in(|one| one.end) == Some(got),
        "This bucket ends last. It was complete long before, but buckets start in order, and one before it was not complete.",
    );
    evidence.means(
        "This bucket starts right after the one before it, for which it had to wait: buckets start in order. Which one starts at the \
         end of the gap?",
    );
    Ok(())
}
