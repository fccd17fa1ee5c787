//! The job that a process belongs to, as a cluster's software describes it. The tool `launch` reads
//! it as lab00 does.
//!
//! Reading order: `hosts.rs` (lists of hosts), `environment.rs` (where to look), `discover.rs`
//! (nodes, ranks per node, cores), `granted.rs` (which of the scheduler's numbers counts),
//! `elsewhere.rs` (other schedulers), `line.rs` (the same job in the flags of four launchers),
//! `session.rs` (the `job.env` of a workshop).

mod discover;
mod elsewhere;
mod environment;
mod granted;
pub mod hosts;
pub mod line;
pub mod session;

pub use discover::{Job, JobFlags, Scheduler};
pub use environment::{Cpus, Environment};
