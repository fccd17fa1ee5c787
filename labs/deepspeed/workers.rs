//! Threads that share a list of tasks.

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use shardlab::error::BadInput;

/// Calls `work` with every task, on some threads. Ends with the first error.
pub(super) fn parallel<T: Sync, R: Send>(
    workers: usize,
    tasks: &[T],
    work: impl Fn(&T) -> Result<R, BadInput> + Sync + Send,
) -> Result<Vec<R>, BadInput> {
    let threads = workers.clamp(1, tasks.len().max(1));
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| {
        BadInput::new(format!("cannot start {threads} threads: {error}"), "give fewer workers")
    })?;
    pool.install(|| tasks.par_iter().map(work).collect())
}
