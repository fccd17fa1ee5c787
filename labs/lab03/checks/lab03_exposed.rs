//! The check of lab03-exposed: the cost of one all-reduce, then several buckets on a quick link and
//! on a slow one.

use exercise::{Job, exposed};
use kit::check::{Evidence, is_near, run};
use shardlab::comm::{CallKind, Link};
use shardlab::{Result, plan};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: no network", |evidence| predict(evidence, job(1, vec![6_000_000], 1e9))),
        ("2 ranks, one bucket", |evidence| {
            predict(evidence, job(2, vec![6_000_000], 1e9))
        }),
        ("8 ranks, one bucket", |evidence| {
            predict(evidence, job(8, vec![6_000_000], 1e9))
        }),
        ("4 buckets, a quick link", |evidence| {
            predict(evidence, job(8, vec![1_500_000; 4], 10e9))
        }),
        ("4 buckets, a slow link", |evidence| {
            predict(evidence, job(8, vec![1_500_000; 4], 0.2e9))
        }),
        ("buckets of different sizes", |evidence| {
            predict(evidence, job(8, vec![300_000, 3_900_000, 1_200_000, 600_000], 0.4e9))
        }),
        ("lab03's model with --link 100us,62MB/s", |evidence| {
            let buckets = [vec![65_536; 12], vec![17_664]].concat();
            let link = Link { latency: 100e-6, bandwidth: 62e6 };
            predict(
                evidence,
                Job {
                    ranks: 2,
                    tokens: 768,
                    flops: 5e10,
                    gradient: 4,
                    buckets,
                    link,
                },
            )
        }),
        ("gradients of 2 bytes", |evidence| {
            let job = job(8, vec![1_500_000; 4], 0.2e9);
            predict(evidence, Job { gradient: 2, ..job })
        }),
    ])
}

/// A job with a backward pass of 48 ms.
fn job(ranks: usize, buckets: Vec<usize>, bandwidth: f64) -> Job {
    Job {
        ranks,
        tokens: 1000,
        flops: 5e11,
        gradient: 4,
        buckets,
        link: Link { latency: 200e-6, bandwidth },
    }
}

/// The time at which a bucket starts.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    /// When all its gradients are complete and the link is free.
    Complete,
    /// After equal shares of the backward pass, whatever the buckets' sizes.
    EqualShares,
    /// When the backward pass begins.
    AtOnce,
    /// When the bucket before it is complete.
    Previous,
    /// When the backward pass ends.
    AtTheEnd,
}

/// A prediction, right or wrong: operations per parameter and token, and latencies and whole
/// transfers per bucket.
struct Rule {
    operations: f64,
    latencies: fn(f64) -> f64,
    transfers: fn(f64) -> f64,
    start: Start,
}

const RIGHT: Rule = Rule {
    operations: 4.0,
    latencies: |n| 2.0 * (n - 1.0),
    transfers: |n| 2.0 * (n - 1.0) / n,
    start: Start::Complete,
};

impl Rule {
    fn backward(&self, job: &Job) -> f64 {
        self.operations * (job.buckets.iter().sum::<usize>() * job.tokens) as f64 / job.flops
    }

    /// When the last bucket has arrived, in seconds after the end of the backward pass.
    fn exposed(&self, job: &Job) -> f64 {
        let n = job.ranks as f64;
        let all = job.buckets.iter().sum::<usize>() as f64;
        let backward = self.backward(job);
        let mut complete = 0.0;
        let mut free = 0.0_f64;
        for (i, &bucket) in job.buckets.iter().enumerate() {
            let before = complete;
            complete += bucket as f64;
            let share = match self.start {
                Start::Complete => complete / all,
                Start::EqualShares => (i + 1) as f64 / job.buckets.len() as f64,
                Start::AtOnce => 0.0,
                Start::Previous => before / all,
                Start::AtTheEnd => 1.0,
            };
            let transfer = (job.gradient * bucket) as f64 / job.link.bandwidth;
            let seconds = (self.latencies)(n) * job.link.latency + (self.transfers)(n) * transfer;
            free = free.max(share * backward) + seconds;
        }
        free - backward
    }
}

/// The prediction that lab03 prints.
fn right(job: &Job) -> f64 {
    let all = job.buckets.iter().sum::<usize>() as f64;
    let mut complete = 0;
    let buckets = job.buckets.iter().map(|&bucket| {
        complete += bucket;
        let seconds =
            job.link
                .collective_seconds(CallKind::AllReduce, job.ranks, job.gradient * bucket);
        (complete as f64 / all, seconds)
    });
    plan::exposed(RIGHT.backward(job), buckets)
}

fn predict(evidence: &mut Evidence, job: Job) -> Result<()> {
    let twice = Job { tokens: 2 * job.tokens, ..job.clone() };
    let jobs = [job, twice];
    let found = jobs.each_ref().map(|job| {
        let Job { ranks, tokens, buckets, link, .. } = job;
        evidence.given(format!(
            "{ranks} ranks, {tokens} tokens, {} buckets and a link of {link}",
            buckets.len()
        ));
        exposed(job)
    });
    for (job, got) in jobs.iter().zip(found) {
        let tokens = job.tokens;
        evidence.near(format!("{tokens} tokens per rank: seconds exposed"), right(job), got);
    }

    let is = |wrong: &dyn Fn(&Job) -> f64| {
        jobs.iter()
            .zip(found)
            .all(|(job, got)| is_near(wrong(job), got) || is_near(wrong(job).max(0.0), got))
    };
    let rule = |rule: Rule| is(&|job| rule.exposed(job));
    let start = |start: Start| jobs[0].ranks > 1 && rule(Rule { start, ..RIGHT });
    let last = |job: &Job| {
        RIGHT.exposed(&Job {
            buckets: job.buckets[job.buckets.len() - 1..].to_vec(),
            ..job.clone()
        })
    };
    let several = jobs[0].buckets.len() > 1;
    evidence.means_if(
        is(&|job| RIGHT.exposed(job) + RIGHT.backward(job)),
        "This is when the last bucket arrives, counted from the beginning of the backward pass. Exposed is the part after its end.",
    );
    evidence.means_if(
        several && start(Start::AtTheEnd),
        "This is all of the communication, as with `--no-overlap`. Each bucket starts as soon as its own gradients are \
         complete, while the pass goes on.",
    );
    evidence.means_if(
        !several && start(Start::AtOnce),
        "This bucket is on the link from the beginning of the backward pass. There is nothing to carry yet: its last gradient is \
         complete only when the pass ends. So the last bucket of a step is always exposed.",
    );
    evidence.means_if(
        start(Start::AtOnce),
        "All buckets are on the link from the beginning of the backward pass, one after the other. It has nothing to carry until \
         the first bucket is complete, and the last bucket is complete only at the end.",
    );
    evidence.means_if(
        start(Start::Previous),
        "Each bucket starts when the one before it is complete. Its own gradients are not computed yet, so the ranks would average \
         what is in memory from the step before.",
    );
    evidence.means_if(
        several && is(&last),
        "This is only the last bucket, as if the link could carry several at once. It is right while the link keeps up. \
         Here the earlier buckets still occupy the link when the last one is complete, and it waits for them.",
    );
    evidence.means_if(
        start(Start::EqualShares),
        "The buckets are unequal. A bucket is complete when the pass has computed its parameters and all those before it.",
    );
    let operations = |operations: f64| rule(Rule { operations, ..RIGHT });
    evidence.means_if(
        operations(2.0) || operations(6.0),
        "The backward pass takes 4 operations per parameter and token. The forward pass takes 2 and is over by now.",
    );
    let latencies = |latencies: fn(f64) -> f64| rule(Rule { latencies, ..RIGHT });
    evidence.means_if(
        latencies(|n| 4.0 * (n - 1.0)),
        "Each round pays the latency twice here. A round is one message to the neighbour, while another one arrives.",
    );
    evidence.means_if(
        latencies(|_| 0.0),
        "The latency is missing: every one of the 2(n-1) rounds pays it.",
    );
    evidence.means_if(
        latencies(|_| 1.0) || latencies(|_| 2.0) || latencies(|n| n - 1.0),
        "A ring has 2(n-1) rounds, and each of them pays the latency.",
    );
    let transfers = |transfers: fn(f64) -> f64| rule(Rule { transfers, ..RIGHT });
    evidence.means_if(
        transfers(|n| 2.0 * (n - 1.0)),
        "Each round carries a whole bucket here. It carries one chunk, 1/n of the bucket.",
    );
    evidence.means_if(
        transfers(|_| 1.0) || transfers(|_| 2.0) || transfers(|n| (n - 1.0) / n),
        "A rank sends 2(n-1)/n times the bucket's bytes: n-1 chunks while sums grow, and n-1 while they travel around.",
    );
    evidence.means_if(
        rule(Rule { latencies: |n| n - 1.0, transfers: |n| (n - 1.0) / n, ..RIGHT }),
        "This is half of the ring: n-1 rounds in which sums grow. In n-1 more rounds the complete sums travel around.",
    );
    evidence.means_if(
        jobs[0].gradient == 2 && is(&|job| RIGHT.exposed(&Job { gradient: 4, ..job.clone() })),
        "Each gradient has 4 bytes here. A job says how many they are: `gradient`.",
    );
    let gradient = jobs[0].gradient as f64;
    evidence.means_if(
        is(&|job| {
            RIGHT.exposed(&Job {
                link: Link { bandwidth: gradient * job.link.bandwidth, ..job.link },
                ..job.clone()
            })
        }),
        "The bandwidth is in bytes per second, and each gradient has several bytes.",
    );
    evidence.means_if(
        jobs[0].ranks == 1,
        "One rank sends nothing: 2(n-1) is 0. So its bucket arrives when the backward pass ends.",
    );
    evidence.means(
        "This is none of the predictions that the check knows. Take the picture's second row: when is each of the four buckets \
         complete, how long does the link carry one, and when is it free for the next?",
    );
    Ok(())
}
