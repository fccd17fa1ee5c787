//! The in-process transport under shuttle: thousands of orders in which ranks may take turns.
//!
//! `cargo test --lib --features shuttle launch::explored`
//!
//! Shuttle finds a hang at once, without a clock: it sees that no rank can go on.

use crate::comm::{Comm, CommError, Reduce};
use crate::launch;
use anyhow::{Result, bail};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` in many orders: random ones, and ones with few but badly placed switches between
/// ranks.
fn explore(body: impl Fn() + Send + Sync + Clone + 'static) {
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 20;
        config
    };
    let random = shuttle::scheduler::RandomScheduler::new(4000);
    shuttle::Runner::new(random, config()).run(body.clone());
    let rare = shuttle::scheduler::PctScheduler::new(3, 4000);
    shuttle::Runner::new(rare, config()).run(body);
}

fn run<T: Send>(ranks: usize, body: impl Fn(Comm) -> Result<T> + Sync) -> Vec<T> {
    launch::run(ranks, body).unwrap()
}

/// Runs ranks that must fail with an error that begins with `says`.
fn fails(ranks: usize, says: &str, body: impl Fn(Comm) -> Result<()> + Sync) {
    let error = format!("{:#}", launch::run(ranks, body).unwrap_err());
    assert!(error.starts_with(says), "{error}");
}

/// Runs ranks that cannot go on together. Returns the run's error.
fn broken(ranks: usize, body: impl Fn(Comm) -> Result<()> + Sync) -> CommError {
    launch::run(ranks, body).unwrap_err().downcast().unwrap()
}

/// Long enough for several blocks.
const LEN: usize = 2100;

fn sums() {
    run(3, |comm| {
        for round in 0..2 {
            let mut x = vec![comm.rank() as u64 + round; LEN];
            comm.all_reduce(&mut x, Reduce::Sum)?;
            assert!(x.iter().all(|&sum| sum == 3 + 3 * round));
            x.fill(99);
        }
        Ok(())
    });
}

#[test]
fn blocking_reductions() {
    explore(sums);
}

/// Without the last barrier of a collective, a rank goes on while others still read its slice.
#[test]
fn a_missing_barrier_is_found() {
    crate::comm::sync::LAST_BARRIER.set(false);
    let gather = || {
        // The slices outlive their ranks, so that reading too late gives a wrong number and nothing
        // worse.
        let slices: Vec<_> = (0..3u64).map(|rank| std::sync::Mutex::new(vec![rank; 4])).collect();
        run(3, |comm| {
            let mut all = vec![0; 12];
            let mut mine = slices[comm.rank()].try_lock().unwrap();
            comm.all_gather(&mine, &mut all)?;
            mine.fill(99);
            assert!(all.iter().enumerate().all(|(i, &x)| x == i as u64 / 4));
            Ok(())
        });
    };
    let found = catch_unwind(|| explore(gather)).is_err();
    crate::comm::sync::LAST_BARRIER.set(true);
    assert!(found, "no order showed it");
    explore(gather);
}

#[test]
fn all_other_collectives() {
    explore(|| {
        run(3, |comm| {
            let rank = comm.rank();
            let mine = [comm.rank() as u64];
            let mut all = [0; 3];
            comm.all_gather(&mine, &mut all)?;
            assert_eq!(all, [0, 1, 2]);
            let mut part = [0];
            comm.reduce_scatter(&all, &mut part, Reduce::Sum)?;
            assert_eq!(part, [3 * rank as u64]);
            comm.broadcast(&mut part, 2)?;
            assert_eq!(part, [6]);
            comm.reduce(&mut part, Reduce::Max, 1)?;
            comm.barrier()?;
            comm.gather(&mine, &mut all, 0)?;
            comm.scatter(&all, &mut part, 0)?;
            assert_eq!(part, mine);
            Ok(())
        });
    });
}

#[test]
fn messages_and_groups() {
    explore(|| {
        run(4, |comm| {
            let rank = comm.rank();
            let mut x = [0u8];
            comm.send(&[rank as u8], (rank + 1) % 4)?;
            let pairs = comm.split(rank as u64 / 2, 0)?;
            let mut sum = [1u8];
            pairs.all_reduce(&mut sum, Reduce::Sum)?;
            comm.recv(&mut x, (rank + 3) % 4)?;
            assert_eq!((x[0], sum[0]), ((rank as u8 + 3) % 4, 2));
            Ok(())
        });
    });
}

#[test]
fn reductions_under_way() {
    explore(|| {
        run(3, |comm| {
            let meet = || comm.barrier();
            let start = |x| comm.start_all_reduce(vec![x; LEN], Reduce::Sum);
            let mut first = start(comm.rank() as u64)?;
            let second = start(1)?;
            drop(start(7)?);
            let tested = first.test()?;
            if comm.rank() == 1 {
                meet()?;
                assert_eq!(second.wait()?, [3; LEN]);
            } else {
                assert_eq!(second.wait()?, [3; LEN]);
                meet()?;
            }
            assert!(!tested || first.test()?);
            assert_eq!(first.wait()?, [3; LEN]);
            Ok(())
        });
    });
}

#[test]
fn gathers_and_scatters_under_way() {
    explore(|| {
        run(3, |comm| {
            let rank = comm.rank();
            let mut all = vec![9; 3 * LEN];
            all[rank * LEN..][..LEN].fill(rank as u64);
            let gathered = comm.start_all_gather(all)?;
            let mut scattered =
                comm.start_reduce_scatter(vec![rank as u64; 3 * LEN], Reduce::Sum)?;
            scattered.test()?;
            assert!(gathered.wait()?.iter().enumerate().all(|(i, &x)| x == (i / LEN) as u64));
            assert_eq!(scattered.wait()?, [3; LEN]);
            Ok(())
        });
    });
}

/// Rank r sends r numbers to each rank, so rank 0 only gets some. One rank does not ask at all.
#[test]
fn parts_of_different_lengths_under_way() {
    explore(|| {
        run(3, |comm| {
            let rank = comm.rank();
            let send = vec![rank as u64; 3 * rank];
            let mut started = comm.start_all_to_all_v(send, &[rank; 3], &[0, 1, 2])?;
            if rank == 1 {
                started.test()?;
            }
            if rank < 2 {
                assert_eq!(started.wait()?, [1, 2, 2]);
            }
            Ok(())
        });
    });
}

/// One rank sleeps until the last block is done, by a rank that only tests now and then.
#[test]
fn who_tests_wakes_who_waits() {
    explore(|| {
        run(2, |comm| {
            let mut started = comm.start_all_reduce(vec![1u64; LEN], Reduce::Sum)?;
            if comm.rank() == 0 {
                assert_eq!(started.wait()?, [2; LEN]);
            } else {
                started.test()?;
                started.test()?;
            }
            Ok(comm.barrier()?)
        });
    });
}

#[test]
fn a_rank_that_ends_with_a_reduction_under_way_does_its_part() {
    explore(|| {
        run(2, |comm| {
            let started = comm.start_all_reduce(vec![1u64; LEN], Reduce::Sum)?;
            if comm.rank() == 0 {
                assert_eq!(started.wait()?, [2; LEN]);
            }
            Ok(())
        });
    });
}

#[test]
fn a_rank_that_fails_wakes_the_others() {
    explore(|| {
        fails(3, "rank 1 failed: the disk is full", |comm| {
            let mut x = vec![1u64; LEN];
            comm.all_reduce(&mut x, Reduce::Sum)?;
            if comm.rank() == 1 {
                bail!("the disk is full");
            }
            let started = comm.start_all_reduce(x.clone(), Reduce::Sum)?;
            comm.all_reduce(&mut x, Reduce::Sum)?;
            started.wait()?;
            Ok(())
        });
    });
}

#[test]
fn different_calls_stop_everyone() {
    explore(|| {
        let error = broken(3, |comm| {
            let mut x = vec![1u64; LEN];
            match comm.rank() {
                2 => comm.barrier()?,
                _ => comm.all_reduce(&mut x, Reduce::Sum)?,
            }
            Ok(())
        });
        assert!(matches!(error, CommError::CallsDiffer { .. }), "{error}");
    });
}

#[test]
fn an_early_end_stops_everyone() {
    explore(|| {
        let error = broken(3, |comm| {
            if comm.rank() > 0 {
                comm.barrier()?;
            }
            Ok(())
        });
        let is_it = matches!(error, CommError::RankEnded { rank: 0, .. });
        assert!(is_it, "{error}");
    });
}

#[test]
fn a_deadlock_stops_everyone() {
    explore(|| {
        let error = broken(2, |comm| {
            let started = comm.start_all_reduce(vec![1u8], Reduce::Sum)?;
            comm.recv(&mut [0u8], 1 - comm.rank())?;
            started.wait()?;
            Ok(())
        });
        assert!(matches!(error, CommError::Deadlock { .. }), "{error}");
    });
}

/// No rank may still read a slice whose owner has returned with an error: here every rank
/// overwrites its memory at once.
#[test]
fn slices_are_not_read_after_an_error() {
    explore(|| {
        let slices: Vec<_> = (0..3u64).map(|_| std::sync::Mutex::new(vec![1u64; LEN])).collect();
        let results = std::sync::Mutex::new(Vec::new());
        let error = launch::run(3, |comm| {
            let mut mine = slices[comm.rank()].try_lock().unwrap();
            let result = if comm.rank() == 2 {
                bail!("stop")
            } else {
                comm.all_reduce(&mut mine, Reduce::Sum)
            };
            // A rank with an error may change its slice, which must not change the others'.
            assert!(result.is_err());
            mine.fill(comm.rank() as u64);
            results.lock().unwrap().push(comm.rank());
            Ok(())
        });
        assert!(error.is_err());
        for rank in [0, 1] {
            assert!(slices[rank].try_lock().unwrap().iter().all(|&x| x == rank as u64));
        }
    });
}

/// A rank's panic is an error of the run, and not a panic that shuttle reports.
#[test]
fn a_panic_is_an_error_of_the_run() {
    explore(|| {
        let quiet = AssertUnwindSafe(|| {
            fails(2, "rank 1 failed: panicked", |comm| {
                let _started = comm.start_all_reduce(vec![1u64; LEN], Reduce::Sum)?;
                if comm.rank() == 1 {
                    std::panic::resume_unwind(Box::new("no message"));
                }
                Ok(comm.barrier()?)
            });
        });
        quiet();
    });
}
