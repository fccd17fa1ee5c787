//! A network link in two numbers, and the time of each call on it.
//!
//! Threads exchange data at memory speed. With a link, their transport takes as long as a network
//! would: a rank whose data is still in flight sleeps until it would have arrived. Sums stay the
//! same to the bit.
//!
//! The model is alpha-beta: a message of S bytes takes `latency + S / bandwidth`. Every rank has
//! its own link, which carries one message out and one message in at a time. All ranks can send at
//! once, but not all to the same rank. A message occupies the sender's link for S / bandwidth
//! seconds, after the sender's earlier messages. It arrives `latency` later, if the receiver's link
//! was free for those S / bandwidth seconds. Otherwise it follows the earlier messages to that
//! rank. The simulator ([`plan::simulate`](crate::plan::simulate())) counts the same way.
//!
//! The collectives of a group occupy the group's link one after the other. Each begins when its
//! last rank has come and the previous one is over. It is complete on all ranks
//! [`Link::collective_seconds`] later.
//!
//! With simulated [nodes](super::Nodes), ranks of one node have one link between them, and ranks of
//! different nodes another.
//!
//! A sleep ends late, by about 20 µs where timers are exact and 70 µs where they are not. So a
//! simulated network is never faster than its link.

pub use shapes::link::Link;
use std::time::Duration;

/// Seconds as a duration of at most a year. A longer time, or a time that is not a number, is a
/// mistake elsewhere.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0))
        .unwrap_or(Duration::MAX)
        .min(Duration::from_secs(365 * 24 * 3600))
}
