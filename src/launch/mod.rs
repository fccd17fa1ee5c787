//! Starting N ranks: one closure, any world.
//!
//! ```
//! use shardlab::launch;
//!
//! let squares = launch::run(3, |comm| Ok(comm.rank() * comm.rank()))?;
//! assert_eq!(squares, [0, 1, 4]);
//! # anyhow::Ok(())
//! ```
//!
//! On a cluster a job is started on many nodes. In reading order:
//!
//! - `hosts.rs`: nodes as host files and Slurm write them down
//! - `job.rs`: the job around this process: nodes, ranks per node, CPUs for each rank
//! - `line.rs`: the line that starts it, in each launcher's own flags
//! - `place.rs`: where each rank came to be
//! - `machine.rs`: what this node has

pub mod hosts;
pub mod job;
pub mod line;
mod machine;
pub mod place;

pub use machine::{cores, free_memory, host_name};

use crate::comm::{Comm, Job};
use crate::error::BadInput;
use anyhow::{Result, bail, ensure};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::thread;

/// Enough for candle's backward pass, which recurses over the graph; memory is taken only as the stack grows.
const STACK_BYTES: usize = 64 << 20;

/// More ranks than this in one process is taken for a slip of the finger.
pub const MAX_RANKS: usize = 1024;

/// Runs `body` once for each of `ranks` ranks, each a thread with a [`Comm`] of its own, and returns their values in rank
/// order. May be called any number of times, with more ranks than cores too.
///
/// A rank that returns an error or panics ends the run: the others stop at their next communication call, and the error
/// returned here begins with that rank's number and message. A rank that returns while others still wait for it is an
/// error as well.
pub fn run<T: Send>(ranks: usize, body: impl Fn(Comm) -> Result<T> + Sync) -> Result<Vec<T>> {
    ensure!((1..=MAX_RANKS).contains(&ranks), "cannot start {ranks} ranks: give a number from 1 to {MAX_RANKS}");
    one_compute_thread_a_rank();
    let job = Job::new(ranks);
    let outcomes = thread::scope(|scope| {
        let start = |rank| {
            let (job, body) = (job.clone(), &body);
            thread::Builder::new()
                .name(format!("rank {rank}"))
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || run_rank(&job, rank, body))
        };
        let mut threads = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            match start(rank) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    job.ended(rank, Some(format!("its thread did not start: {error}")));
                    break;
                }
            }
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
    if let Some(failure) = job.failure() {
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

fn run_rank<T>(job: &Arc<Job>, rank: usize, body: impl Fn(Comm) -> Result<T>) -> Outcome<T> {
    let comm = job.comm(rank);
    // What `body` shares with the other ranks may be left half changed by a panic, but the whole run ends with it.
    let result = catch_unwind(AssertUnwindSafe(|| body(comm)))
        .unwrap_or_else(|panic| Err(anyhow::anyhow!("panicked: {}", panic_message(&*panic))));
    match result {
        Ok(value) => {
            job.ended(rank, None);
            Outcome::Value(value)
        }
        Err(error) => {
            let first = job.ended(rank, Some(format!("{error:#}")));
            Outcome::Failed { error, first }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

/// Tells candle and rayon to compute on the calling thread, unless the user has set their variables.
///
/// Ranks are the parallelism here. Without this, every rank would hand its large tensors to one pool shared by the whole
/// process, and wait there for the others. It must happen before the first tensor operation, because candle reads one of
/// the variables once; and in code, because no file of the project's reaches `mpirun` or a notebook.
pub fn one_compute_thread_a_rank() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
            if std::env::var_os(name).is_none() {
                // SAFETY: the standard library guards the environment with a lock, and candle and rayon read it through
                // the standard library; no C code that reads it runs at this point.
                unsafe { std::env::set_var(name, "1") };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Reduce;
    use std::time::{Duration, Instant};

    /// The error of a run in which every rank but `rank` waits in a barrier.
    fn run_with_a_failing_rank(rank: usize, fail: impl Fn() -> Result<()> + Sync) -> String {
        let start = Instant::now();
        let result = run(3, |comm| {
            if comm.rank() == rank {
                return fail();
            }
            Ok(comm.barrier()?)
        });
        // Only a hang reaches this bound.
        assert!(start.elapsed() < Duration::from_secs(20));
        format!("{:#}", result.unwrap_err())
    }

    #[test]
    fn values_come_in_rank_order_and_runs_can_be_repeated() -> Result<()> {
        for ranks in [1, 2, 5, 3] {
            assert_eq!(run(ranks, |comm| Ok(comm.rank()))?, (0..ranks).collect::<Vec<_>>());
        }
        Ok(())
    }

    #[test]
    fn an_error_ends_the_run_and_comes_first() {
        let error = run_with_a_failing_rank(1, || bail!("the disk is full"));
        assert!(error.starts_with("rank 1 failed: the disk is full"), "{error}");
    }

    #[test]
    fn a_panic_ends_the_run_and_comes_first() {
        let error = run_with_a_failing_rank(2, || panic!("index {} is out of bounds", 7));
        assert!(error.starts_with("rank 2 failed: panicked: index 7 is out of bounds"), "{error}");
    }

    #[test]
    fn a_rank_that_leaves_early_is_an_error() {
        let error = run_with_a_failing_rank(0, || Ok(()));
        assert!(error.starts_with("rank 0 ended, and never entered barrier"), "{error}");
        assert!(error.contains("\n  rank 0  ended without any communication call\n"), "{error}");
        assert!(error.contains("\n  rank 1  ") && error.contains("\nhelp: "), "{error}");
    }

    #[test]
    fn an_error_that_a_rank_swallows_still_fails_the_run() {
        let result = run(2, |comm| {
            let mut x = [0f32; 2];
            let len = 1 + comm.rank();
            comm.all_reduce(&mut x[..len], Reduce::Sum).ok();
            Ok(())
        });
        let error = format!("{:#}", result.unwrap_err());
        assert!(error.starts_with("the ranks are in different calls: all_reduce (sum, "), "{error}");
    }

    #[test]
    fn zero_ranks_and_absurdly_many_are_refused() {
        for ranks in [0, MAX_RANKS + 1] {
            assert!(run(ranks, |_| Ok(())).is_err());
        }
    }
}
