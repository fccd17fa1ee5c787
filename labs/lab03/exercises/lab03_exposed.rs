//! lab03-exposed · Predict the exposed time
//!
//! While the network averages one bucket of gradients, the backward pass computes the next ones.
//! The time in which a rank only waits for the network is exposed. lab03 predicts it and measures
//! it: `cargo run --bin lab03 -- --link 100us,62MB/s`. Here you write the prediction:
//!
//! - The backward pass takes 4 operations per parameter and token, and completes parameters at a
//!   steady rate.
//! - The link carries one bucket at a time, in order. Each is one all-reduce by a ring, as in
//!   lab01; every round pays the latency.
//!
//! ```text
//! 4 ranks, 1e12 operations per second, 4 bytes, a link of 100 us and 1 GB/s
//!
//! tokens   buckets                                 exposed
//!  1,000   [20,000,000]                            0.1206 s
//!  1,000   [5,000,000, 5,000,000, ... four]        0.0624 s
//!  4,000   [5,000,000, 5,000,000, ... four]        0.0306 s
//! ```

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
    todo!(
        "after {backward} s of the backward pass: when does the last of {} buckets arrive?",
        job.buckets.len()
    )
}
