//! Threads that share a list of tasks.

use shardlab::error::BadInput;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Calls `work` with every task, on some threads. Ends with the first error.
pub(super) fn parallel<T: Sync, R: Send>(
    workers: usize,
    tasks: &[T],
    work: impl Fn(&T) -> Result<R, BadInput> + Sync,
) -> Result<Vec<R>, BadInput> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(task) = tasks.get(at) else {
                return done;
            };
            let result = work(task);
            if result.is_err() {
                next.store(tasks.len(), Relaxed);
            }
            done.push((at, result));
        }
    };
    let mut all: Vec<(usize, Result<R, BadInput>)> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (1..workers.clamp(1, tasks.len().max(1))).map(|_| scope.spawn(run)).collect();
        let mut all = run();
        for thread in threads {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}
