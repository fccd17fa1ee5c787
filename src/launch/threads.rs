//! Ranks as threads of this process.

use super::{STACK_BYTES, exit};
use crate::comm::sync::{spawn, thread};
use crate::comm::{Comm, CommError, Options, Panicked, ThreadWorld};
use crate::error::BadInput;
use crate::notice::complain;
use anyhow::Result;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs ranks as threads for [`run_with`](super::run_with).
pub(super) fn run<T: Send>(
    ranks: usize,
    options: &Options,
    body: impl Fn(Comm) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let run = ThreadWorld::new(ranks, options);
    let outcomes = thread::scope(|scope| {
        let start = |rank| {
            let run = run.clone();
            let body = &body;
            spawn(scope, format!("rank {rank}"), STACK_BYTES, move || {
                if options.has_link() {
                    exact_timer();
                }
                run_rank(&run, rank, body)
            })
        };
        let mut threads = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            match start(rank) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let error = anyhow::anyhow!(
                        "its thread did not start: {error}\n\
                         help: start fewer ranks, or allow more threads and memory: ulimit -u; ulimit -v ({} MiB for each stack)",
                        STACK_BYTES >> 20
                    );
                    for rank in rank..ranks {
                        run.ended(rank, Some(CommError::of_rank(rank, &error)));
                    }
                    break;
                }
            }
        }
        if !run.wait_for_end() {
            // Nothing can end a thread from outside, and joining it would take forever.
            if let Some(failure) = run.failure() {
                complain(&format!("error: {failure}"));
            }
            complain(
                "error: a rank does not come to its next communication call; the process ends without it",
            );
            std::process::exit(1);
        }
        threads.into_iter().map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });

    let mut values = Vec::with_capacity(ranks);
    let mut cause = None;
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Some(Ok(value)) => values.push(value),
            Some(Err((error, true))) => cause = Some((rank, error)),
            Some(Err(_)) | None => {}
        }
    }
    match (cause, run.failure()) {
        // Bad input is the user's mistake, whichever rank found it.
        (Some((_, error)), _) if error.is::<BadInput>() => Err(error),
        (Some((rank, error)), _) => Err(error.context(format!("rank {rank} failed"))),
        (None, Some(failure)) => Err(failure.into()),
        (None, None) => Ok(values),
    }
}

/// Runs one rank's closure. An error comes with whether it ended the run, rather than being a
/// consequence of an earlier one.
fn run_rank<T>(
    run: &Arc<ThreadWorld>,
    rank: usize,
    body: impl Fn(Comm) -> Result<T>,
) -> Result<T, (anyhow::Error, bool)> {
    let comm = run.comm(rank);
    let result = exit::watch(rank, || catch_panic(|| body(comm)));
    let error = result.as_ref().err();
    let ended_the_run = run.ended(rank, error.map(|error| CommError::of_rank(rank, error)));
    result.map_err(|error| (error, ended_the_run))
}

/// Makes this thread's sleeps end on time. By default Linux ends them up to 50 µs late, to wake
/// several threads at once, and a simulated link would be slower by this time.
fn exact_timer() {
    #[cfg(target_os = "linux")]
    if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
        let number = thread.file_name().unwrap_or_default();
        std::fs::write(std::path::Path::new("/proc").join(number).join("timerslack_ns"), "1").ok();
    }
}

/// Runs `body`, and turns a panic into an error.
pub(super) fn catch_panic<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // A panic may leave data that ranks share half changed, but the whole run ends with it.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panicked(&*panic).into()))
}

fn panicked(panic: &(dyn Any + Send)) -> Panicked {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Panicked(text.unwrap_or("(no message)").to_string())
}
