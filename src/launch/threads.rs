//! Ranks as threads of this process.

use super::{STACK_BYTES, exit};
use crate::comm::sync::{spawn, thread};
use crate::comm::{Comm, Options, Run};
use crate::error::BadInput;
use crate::show::complain;
use anyhow::{Result, bail};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// See [`run_with`](super::run_with).
pub(super) fn run<T: Send>(ranks: usize, options: &Options, body: impl Fn(Comm) -> Result<T> + Sync) -> Result<Vec<T>> {
    let run = Run::new(ranks, options);
    let outcomes = thread::scope(|scope| {
        let start = |rank| {
            let (run, body) = (run.clone(), &body);
            spawn(scope, format!("rank {rank}"), STACK_BYTES, move || {
                if options.link.is_some() {
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
                    let error = format!(
                        "its thread did not start: {error}\n\
                         help: start fewer ranks, or allow more threads and memory: ulimit -u; ulimit -v ({} MiB for each stack)",
                        STACK_BYTES >> 20
                    );
                    for rank in rank..ranks {
                        run.ended(rank, Some(error.clone()));
                    }
                    break;
                }
            }
        }
        if !run.wait_for_end() {
            // A thread cannot be ended from outside, and joining it would take for ever.
            complain(&format!("error: {}", run.failure().unwrap_or_default()));
            complain("error: a rank does not come to its next communication call; the process ends without it");
            std::process::exit(1);
        }
        threads.into_iter().map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });

    let mut values = Vec::with_capacity(ranks);
    let mut first_error = None;
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Some(Outcome::Value(value)) => values.push(value),
            Some(Outcome::Failed { error, first: true }) => first_error = Some((rank, error)),
            Some(Outcome::Failed { .. }) | None => {}
        }
    }
    if let Some((rank, error)) = first_error {
        // Bad input is the user's to mend, whichever rank found it.
        let context = |error: anyhow::Error| error.context(format!("rank {rank} failed"));
        return Err(if error.is::<BadInput>() { error } else { context(error) });
    }
    if let Some(failure) = run.failure() {
        bail!(failure);
    }
    Ok(values)
}

enum Outcome<T> {
    Value(T),
    /// `first`: this error ended the run; otherwise it is a consequence of another rank's.
    Failed {
        error: anyhow::Error,
        first: bool,
    },
}

fn run_rank<T>(run: &Arc<Run>, rank: usize, body: impl Fn(Comm) -> Result<T>) -> Outcome<T> {
    let comm = run.comm(rank);
    match exit::watch(rank, || catch_panic(|| body(comm))) {
        Ok(value) => {
            run.ended(rank, None);
            Outcome::Value(value)
        }
        Err(error) => {
            let first = run.ended(rank, Some(format!("{error:#}")));
            Outcome::Failed { error, first }
        }
    }
}

/// Lets this thread's sleeps end when they should, and not up to 50 µs later, as Linux does to wake several threads at once.
/// Where that cannot be had, a simulated link is slower by so much.
fn exact_timer() {
    #[cfg(target_os = "linux")]
    if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
        let number = thread.file_name().unwrap_or_default();
        std::fs::write(std::path::Path::new("/proc").join(number).join("timerslack_ns"), "1").ok();
    }
}

/// A panic as an error.
pub(super) fn catch_panic<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // What `body` shares with other ranks may be left half changed by a panic, but the whole run ends with it.
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {}", panic_message(&*panic))))
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
