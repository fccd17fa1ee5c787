//! Ranks that are late, and what is known of the time before an error.

use shardlab::comm::{CallKind, Comm, CommError, Options, Reduce, Result};
use shardlab::launch;
use std::process::Command;
use std::time::{Duration, Instant};

fn options() -> Options {
    Options { deadline: Duration::from_secs(1), ..Options::default() }
}

/// Rank 1 computes for so long before it comes to a barrier.
fn slow(comm: &Comm, time: Duration) -> Result<()> {
    comm.all_reduce(&mut [1f32], Reduce::Sum)?;
    if comm.rank() == 1 {
        std::thread::sleep(time);
    }
    comm.barrier()
}

/// This test program again, with one of its ignored tests, which ends the process or speaks to the
/// terminal.
fn again(test: &str) -> (String, bool) {
    let program = std::env::current_exe().unwrap();
    let test = format!("late::{test}");
    let output = Command::new(program)
        .args(["--ignored", "--exact", "--nocapture", &test])
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.success())
}

#[test]
fn whoever_is_too_late_is_an_error() {
    let body = |comm: Comm| Ok(slow(&comm, Duration::from_secs(3))?);
    let error = launch::run_with(3, &options(), body).unwrap_err();
    let Some(CommError::DeadlinePassed { missing, call, waited, .. }) = error.downcast_ref() else {
        panic!("{error:#}")
    };
    assert_eq!((&missing[..], call.kind), (&[1][..], CallKind::Barrier));
    assert!(*waited >= options().deadline && call.number == Some(2));
    let error = format!("{error:#}");
    assert!(
        error.starts_with("rank 1 did not come to barrier (tests/library/late.rs:"),
        "{error}"
    );
    assert!(
        error.contains("\n  rank 1  computes for ") && error.contains(", its call 1\n"),
        "{error}"
    );
    assert!(
        error.contains("\n  rank 2  waits in barrier (") && error.contains("\nhelp: "),
        "{error}"
    );
}

#[test]
fn whoever_is_a_little_late_is_named_and_not_ended() {
    let (said, well) = again("slow_rank");
    assert!(well, "{said}");
    for part in [
        "notice: rank 1 is late: rank ",
        "notice: rank 1 is a straggler: rank ",
        "notice: rank 1 came to barrier",
    ] {
        assert_eq!(said.matches(part).count(), 1, "{part}\n{said}");
    }
    assert!(
        said.contains("\n  rank 1  computes, after all_reduce (sum, 1 f32, tests/library/late.rs:"),
        "{said}"
    );
}

#[test]
#[ignore = "for whoever_is_a_little_late_is_named_and_not_ended"]
fn slow_rank() {
    launch::run_with(2, &options(), |comm| Ok(slow(&comm, Duration::from_millis(450))?)).unwrap();
}

#[test]
fn a_rank_that_never_comes_back_keeps_nobody() {
    let start = Instant::now();
    let (said, well) = again("stuck_rank");
    // Only a hang reaches this bound.
    assert!(!well && start.elapsed() < Duration::from_secs(60));
    assert!(
        said.contains("error: rank 1 did not come to barrier (tests/library/late.rs:"),
        "{said}"
    );
    assert!(
        said.contains("error: a rank does not come to its next communication call"),
        "{said}"
    );
}

#[test]
#[ignore = "for a_rank_that_never_comes_back_keeps_nobody"]
fn stuck_rank() {
    launch::run_with(2, &options(), |comm| Ok(slow(&comm, Duration::from_secs(3600))?)).ok();
}

#[test]
fn calls_that_differ_by_their_place_alone_are_told_apart() {
    let order = |comm: Comm| {
        let gradients = || comm.all_reduce(&mut [1f32], Reduce::Sum);
        let losses = || comm.all_reduce(&mut [1f32], Reduce::Sum);
        if comm.rank() == 1 {
            losses()?;
        }
        gradients()?;
        Ok(losses()?)
    };
    let error = launch::run(2, order).unwrap_err();
    let Some(CommError::CallsDiffer { calls, alike: true, .. }) = error.downcast_ref() else {
        panic!("{error:#}")
    };
    assert_ne!(calls[0].line, calls[1].line);
    let error = format!("{error:#}");
    assert!(
        error.starts_with(
            "the ranks are in different calls: all_reduce (sum, 1 f32, tests/library/late.rs:"
        ),
        "{error}"
    );
    assert!(error.contains("give both a label: comm.labelled("), "{error}");
}

#[test]
fn labels_let_different_places_meet() {
    #[expect(clippy::if_same_then_else, reason = "the places differ")]
    let broadcast = |comm: Comm| {
        let mut x = [comm.rank() as f32];
        let comm = comm.labelled("weights");
        if comm.rank() == 1 {
            comm.broadcast(&mut x, 1)?;
        } else {
            comm.broadcast(&mut x, 1)?;
        }
        Ok(x[0])
    };
    assert_eq!(launch::run(3, broadcast).unwrap(), [1.0; 3]);
    // A label is what counts, also where the place is the same.
    let labels = |comm: Comm| {
        Ok(comm.labelled(["weights", "moments"][comm.rank()]).broadcast(&mut [0f32], 1)?)
    };
    let error = format!("{:#}", launch::run(2, labels).unwrap_err());
    assert!(
        error.contains("broadcast \"weights\" (") && error.contains("broadcast \"moments\" ("),
        "{error}"
    );
}

#[test]
fn a_wait_is_for_the_call_that_was_started() {
    let body = |comm: Comm| {
        // Buckets of one length: their calls differ in nothing but the number.
        let buckets = if comm.rank() == 0 { 3 } else { 0 };
        let start = |_| comm.start_all_reduce(vec![1f32; 7], Reduce::Sum);
        let started: Vec<_> = (0..buckets).map(start).collect::<Result<_>>()?;
        started.into_iter().try_for_each(|one| one.wait().map(drop))?;
        Ok(())
    };
    let error = format!("{:#}", launch::run(2, body).unwrap_err());
    let line = error
        .lines()
        .find(|line| line.starts_with("  rank 0  waits in start_all_reduce"));
    assert!(line.is_some_and(|line| line.ends_with(", its call 1")), "{error}");
}

#[test]
fn a_rank_that_ends_the_process_is_no_success() {
    let (said, well) = again("leaving_rank");
    assert!(!well, "{said}");
    assert!(
        said.contains("error: rank 1 failed: it ended the process instead of returning")
            && said.contains("help: "),
        "{said}"
    );
}

#[test]
#[ignore = "for a_rank_that_ends_the_process_is_no_success"]
fn leaving_rank() {
    let leave = |comm: Comm| {
        if comm.rank() == 1 {
            std::process::exit(0)
        } else {
            Ok(comm.barrier()?)
        }
    };
    launch::run(3, leave).ok();
}

#[test]
fn the_last_calls_are_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new/flight.jsonl");
    let options = Options { flight_file: Some(file.clone()), ..options() };
    let body = |comm: Comm| {
        for _ in 0..100 {
            comm.barrier()?;
        }
        let started = comm.start_all_reduce(vec![1f32; 7], Reduce::Sum)?;
        if comm.rank() == 0 {
            comm.labelled("odd").all_reduce(&mut [1u8; 5], Reduce::Max)?;
        }
        started.wait()?;
        Ok(comm.barrier()?)
    };
    let error = format!("{:#}", launch::run_with(2, &options, body).unwrap_err());
    let says = format!("the last 64 calls of every rank are in {}", file.display());
    assert!(error.ends_with(&says), "{error}");
    let text = std::fs::read_to_string(file).unwrap();
    let calls: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(calls.iter().filter(|call| call["rank"] == 1).count(), 64);
    let of_rank_0: Vec<_> = calls.iter().filter(|call| call["rank"] == 0).collect();
    let [.., barrier, started, odd] = &of_rank_0[..] else {
        panic!("{text}")
    };
    assert_eq!(
        (&barrier["call"], &barrier["number"], &barrier["state"]),
        (&"barrier".into(), &100.into(), &"done".into())
    );
    assert_eq!((&started["call"], &started["len"]), (&"start_all_reduce".into(), &7.into()));
    assert_eq!(
        (&odd["label"], &odd["number"], &odd["state"]),
        (&"odd".into(), &102.into(), &"in it".into())
    );
    assert!(barrier["end_unix_s"].as_f64().unwrap() >= barrier["start_unix_s"].as_f64().unwrap());
    assert!(odd["end_unix_s"].is_null());
}
