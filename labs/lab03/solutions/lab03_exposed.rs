//! lab03-exposed · Predict the exposed time

use shardlab::comm::Link;

/// One step of a job, in numbers.
#[derive(Clone, Debug)]
pub struct Job {
    pub ranks: usize,
    /// Tokens that each rank computes per step.
    pub tokens: usize,
    /// Operations per second of each rank.
    pub flops: f64,
    /// Bytes per gradient.
    pub gradient: usize,
    /// Parameters in each bucket, in the order in which the backward pass completes them.
    pub buckets: Vec<usize>,
    /// `link.latency` in seconds and `link.bandwidth` in bytes per second.
    pub link: Link,
}

/// The seconds of a step in which each rank only waits for the network.
pub fn exposed(job: &Job) -> f64 {
    let parameters = job.buckets.iter().sum::<usize>() as f64;
    let backward = 4.0 * parameters * job.tokens as f64 / job.flops;
    let n = job.ranks as f64;
    let mut complete = 0.0;
    let mut link_free = 0.0_f64;
    for &bucket in &job.buckets {
        complete += bucket as f64;
        let chunk = (job.gradient * bucket) as f64 / n;
        let seconds = 2.0 * (n - 1.0) * (job.link.latency + chunk / job.link.bandwidth);
        // It waits for its gradients, and for the link.
        let start = link_free.max(backward * complete / parameters);
        link_free = start + seconds;
    }
    link_free - backward
}
