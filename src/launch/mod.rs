//! Starting N ranks: one closure, on threads or on MPI processes.
//!
//! ```
//! use shardlab::launch;
//!
//! let squares = launch::run(3, |comm| Ok(comm.rank() * comm.rank()))?;
//! assert_eq!(squares, [0, 1, 4]);
//! # anyhow::Ok(())
//! ```
//!
//! Reading order: `mod.rs`, `threads.rs` (ranks of this process), `exit.rs` (a rank that ends the
//! process), `tests/explored.rs` (tests: ranks in thousands of orders), `launcher.rs` and
//! `world.rs` (is this process part of an MPI job?), `settings.rs` (were its ranks started alike?).
//! `machine.rs` (this node's memory and name). All of MPI is in `mpi.rs`, whose place
//! `without_mpi.rs` takes in a build without the feature `mpi`.

mod exit;
#[cfg(all(test, feature = "shuttle"))]
#[path = "tests/explored.rs"]
mod explored;
mod launcher;
mod machine;
#[cfg_attr(not(feature = "mpi"), path = "without_mpi.rs")]
mod mpi;
mod settings;
mod threads;
mod world;

pub use crate::comm::cores;
pub use crate::memory::keep_freed_memory;
pub use launcher::{Launched, launched};
pub use machine::{host_name, memory_limit, process_id, process_memory};
pub use settings::{CommandLine, started_with};
pub use world::{free_memory, is_first_process, is_mpi, ranks, ranks_here};

use crate::comm::{Comm, Options};
use crate::error::BadInput;
use crate::notice::complain;
use anyhow::{Result, ensure};
use std::process::ExitCode;
use std::sync::Once;
use world::{World, alike, world};

/// The stack of a rank: enough for candle's backward pass, which recurses where a model is more
/// than one chain. A stack takes memory only as it grows, but not in a browser.
const STACK_BYTES: usize = if cfg!(target_family = "wasm") {
    4 << 20
} else {
    64 << 20
};

/// The largest number of ranks in one process. A larger number is taken for a mistake.
pub const MAX_RANKS: usize = 1024;

/// Runs a lab, for its `main`: prints the lab's error as `error: …`, and leaves MPI if the lab used
/// it. The exit code is 0, or 2 for [`BadInput`], or 1 for any other error.
pub fn main(lab: impl FnOnce() -> Result<()>) -> ExitCode {
    let result = match crate::simd::unknown() {
        None => lab(),
        Some(setting) => Err(BadInput::new(
            format!("SHARDLAB_SIMD={setting:?} is unknown"),
            "set it to portable or vectors, or leave it out",
        )
        .into()),
    };
    let code = match &result {
        Ok(()) => 0,
        Err(error) if error.is::<BadInput>() => 2,
        Err(_) => 1,
    };
    if let Err(error) = &result {
        tell(error);
    }
    if let Ok(World::Mpi(world)) = world() {
        mpi::end(world, code);
    }
    ExitCode::from(code)
}

/// Prints an error once, whether one process of a job has it or all have it.
fn tell(error: &anyhow::Error) {
    if is_first_process() {
        complain(&format!("error: {error:#}"));
    } else if is_mpi() || !world::first_process_speaks() {
        // If the first process has the same error, it ends the job meanwhile, for which Open MPI
        // has been seen to need a second. A shell that inherited a rank's variables has none.
        std::thread::sleep(std::time::Duration::from_secs(3));
        complain(&format!("error: on {}: {error:#}", host_name()));
    }
}

/// Runs `body` once for each of `ranks` ranks, each with its own [`Comm`]. A program may call this
/// any number of times.
///
/// Ranks are threads of this process, even if there are fewer cores. Their values are returned in
/// rank order. A rank that returns an error or panics ends the run: the others stop at their next
/// communication call, and the returned error begins with that rank's number and message. A rank
/// that returns while others still wait for it is an error as well.
///
/// Under an MPI launcher, and with the feature `mpi`, this process is one of `ranks` ranks. `body`
/// runs once, and only this rank's value is returned. An error or panic prints its message and ends
/// every process of the job.
///
/// # Errors
/// - The error of the first rank that failed by itself, with its number as context. Its type is
///   kept: `error.downcast_ref()`.
/// - [`CommError`](crate::comm::CommError) if the ranks could not go on together, even if each of
///   them has ignored it.
/// - [`BadInput`] if the environment is that of a launcher that this build cannot connect to, or
///   that has started ranks with different settings ([`started_with`]).
/// - Any other number of ranks than 1 to [`MAX_RANKS`], or under a launcher than that of its
///   processes.
pub fn run<T: Send>(ranks: usize, body: impl Fn(Comm) -> Result<T> + Sync) -> Result<Vec<T>> {
    run_with(ranks, &Options::default(), body)
}

/// [`run`] with options for the communication.
///
/// # Errors
/// Those of [`run`]. A simulated link under an MPI launcher is [`BadInput`]: that network is real.
pub fn run_with<T: Send>(
    ranks: usize,
    options: &Options,
    body: impl Fn(Comm) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    ensure!(
        (1..=MAX_RANKS).contains(&ranks),
        "cannot start {ranks} ranks: give a number from 1 to {MAX_RANKS}"
    );
    one_compute_thread_a_rank();
    keep_freed_memory();
    match alike()? {
        World::Threads => threads::run(ranks, options, body),
        World::Mpi(world) => {
            let body =
                |comm: Comm| exit::watch(comm.rank(), || threads::catch_panic(|| body(comm)));
            Ok(vec![mpi::run(world, ranks, options, body)?])
        }
    }
}

/// Makes candle and rayon compute on the calling thread, unless the user has set their variables.
///
/// Here ranks are the parallelism. Otherwise every rank would hand its large tensors to one pool of
/// the whole process, and wait there for the other ranks. This must happen before the first tensor
/// operation, because candle reads one of the variables only once. It must happen in code, because
/// no file of the project reaches `mpirun` or a notebook.
pub fn one_compute_thread_a_rank() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
            if std::env::var_os(name).is_none() {
                // SAFETY: the standard library guards the environment with a lock, and candle and
                // rayon read it through the standard library. No C code reads it at this point.
                unsafe { std::env::set_var(name, "1") };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{CommError, Reduce};
    use anyhow::bail;
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
        assert!(
            error.starts_with("rank 2 failed: panicked: index 7 is out of bounds"),
            "{error}"
        );
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
        let error = result.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CommError::CallsDiffer { .. })), "{error:#}");
    }

    #[test]
    fn zero_ranks_and_absurdly_many_are_refused() {
        for ranks in [0, MAX_RANKS + 1] {
            assert!(run(ranks, |_| Ok(())).is_err());
        }
    }
}
