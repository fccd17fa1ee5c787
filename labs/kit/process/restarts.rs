//! How a job that is started again learns of it.

/// The variable by which `launch` tells a job how often it has been restarted.
pub const RESTART_COUNT: &str = "SHARDLAB_RESTART_COUNT";

/// How often the launcher has restarted this job: 0 in the first attempt, and without
/// `--max-restarts`.
pub fn restart_count() -> usize {
    let count = std::env::var(RESTART_COUNT).ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}
