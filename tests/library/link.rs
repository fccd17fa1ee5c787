//! A simulated link: it takes at least what the formula says, hides behind computing, and changes
//! no result. There are lower bounds only: a busy machine is slower.

use crate::suite;
use shardlab::comm::{CallKind, Comm, Link, Nodes, Options, Reduce};
use shardlab::launch;
use std::time::{Duration, Instant};

const LINK: Link = Link { latency: 2e-3, bandwidth: 10e6 };

fn run<T: Send>(ranks: usize, body: impl Fn(Comm) -> anyhow::Result<T> + Sync) -> Vec<T> {
    launch::run_with(ranks, &Options { link: Some(LINK), ..Options::default() }, body).unwrap()
}

/// Two nodes of two ranks, with a slow link between them alone.
#[test]
fn ranks_of_two_nodes_take_the_slow_link() {
    let nodes = Nodes { ranks_per_node: 2, link: LINK };
    let options = Options { nodes: Some(nodes), ..Options::default() };
    let seconds = launch::run_with(4, &options, |comm| {
        let rank = comm.rank();
        let inside = comm.split(rank as u64 / 2, 0)?;
        let between = comm.split(rank as u64 % 2, 0)?;
        let mut times = Vec::new();
        // A busy machine is late at times: the best of three.
        let mut best = |work: &dyn Fn() -> anyhow::Result<()>| -> anyhow::Result<()> {
            let mut least = f64::INFINITY;
            for _ in 0..3 {
                comm.barrier()?;
                let start = Instant::now();
                work()?;
                least = least.min(start.elapsed().as_secs_f64());
            }
            times.push(least);
            Ok(())
        };
        for group in [&inside, &between, &comm] {
            best(&|| {
                group.all_reduce(&mut [1f32; 25_000], Reduce::Sum)?;
                group.start_all_reduce(vec![1f32; 25_000], Reduce::Sum)?.wait()?;
                Ok(())
            })?;
        }
        for to in [rank ^ 1, rank ^ 2] {
            best(&|| {
                comm.send(&[1f32; 25_000], to)?;
                Ok(comm.recv(&mut [0f32; 25_000], to)?)
            })?;
        }
        Ok(times)
    });
    for times in seconds.unwrap() {
        // 100 kB in 10 ms: an all-reduce of two takes as long, and one of four 1.5 times.
        let [inside, between, all, near, far] = times[..] else {
            panic!("{times:?}")
        };
        let slow = between >= 0.028 && all >= 0.054 && far >= 0.008;
        assert!(slow && inside < between && near < far, "{times:?}");
    }
}

/// Seconds of the slowest rank.
fn slowest(ranks: usize, body: impl Fn(&Comm) -> anyhow::Result<()> + Sync) -> f64 {
    let seconds = run(ranks, |comm| {
        let start = Instant::now();
        body(&comm)?;
        Ok(start.elapsed().as_secs_f64())
    });
    seconds.into_iter().fold(0.0, f64::max)
}

#[test]
fn every_collective_takes_what_the_formula_says() {
    let n = 3;
    let len = 2000;
    let all = |comm: &Comm, kind: CallKind| -> anyhow::Result<()> {
        let mut x = vec![1f32; len];
        let mut long = vec![1f32; n * len];
        match kind {
            CallKind::Barrier => comm.barrier()?,
            CallKind::AllReduce => comm.all_reduce(&mut x, Reduce::Sum)?,
            CallKind::StartAllReduce => drop(comm.start_all_reduce(x, Reduce::Sum)?.wait()?),
            CallKind::StartReduce => drop(comm.start_reduce(x, Reduce::Sum, 0)?.wait()?),
            CallKind::StartAllGather => drop(comm.start_all_gather(long)?.wait()?),
            CallKind::StartReduceScatter => {
                drop(comm.start_reduce_scatter(long, Reduce::Sum)?.wait()?)
            }
            CallKind::Reduce => comm.reduce(&mut x, Reduce::Sum, 0)?,
            CallKind::Broadcast => comm.broadcast(&mut x, 1)?,
            CallKind::AllGather => comm.all_gather(&x, &mut long)?,
            CallKind::ReduceScatter => comm.reduce_scatter(&long, &mut x, Reduce::Sum)?,
            CallKind::Scatter => comm.scatter(&long, &mut x, 0)?,
            CallKind::Gather => comm.gather(&x, &mut long, 0)?,
            CallKind::AllToAll => comm.all_to_all(&long.clone(), &mut long)?,
            CallKind::AllToAllV => {
                let even = vec![len; n];
                comm.all_to_all_v(&long.clone(), &even, &mut long, &even)?;
            }
            CallKind::StartAllToAllV => {
                let even = vec![len; n];
                comm.start_all_to_all_v(long, &even, &even)?.wait()?;
            }
            CallKind::Split => drop(comm.split(0, 0)?),
            CallKind::Send | CallKind::Recv | CallKind::Probe => {
                comm.send(&x, (comm.rank() + 1) % n)?;
                comm.recv(&mut x, (comm.rank() + n - 1) % n)?;
            }
        }
        Ok(())
    };
    for (kind, bytes) in [
        (CallKind::Barrier, 0),
        (CallKind::AllReduce, 4 * len),
        (CallKind::StartAllReduce, 4 * len),
        (CallKind::StartReduce, 4 * len),
        (CallKind::StartAllGather, n * 4 * len),
        (CallKind::StartReduceScatter, n * 4 * len),
        (CallKind::Reduce, 4 * len),
        (CallKind::Broadcast, 4 * len),
        (CallKind::AllGather, n * 4 * len),
        (CallKind::ReduceScatter, n * 4 * len),
        (CallKind::Scatter, n * 4 * len),
        (CallKind::Gather, n * 4 * len),
        (CallKind::AllToAll, n * 4 * len),
        (CallKind::AllToAllV, (n - 1) * 4 * len),
        (CallKind::StartAllToAllV, (n - 1) * 4 * len),
        (CallKind::Split, n * 16),
        (CallKind::Send, 4 * len),
    ] {
        let formula = LINK.collective_seconds(kind, n, bytes);
        assert!(formula >= 2e-3);
        let once = slowest(n, |comm| all(comm, kind));
        assert!(once >= formula, "{kind:?}: {once} s, by the formula {formula}");
        // One after the other.
        let twice = slowest(n, |comm| all(comm, kind).and_then(|()| all(comm, kind)));
        assert!(
            twice >= 2.0 * formula,
            "two of {kind:?}: {twice} s, by the formula {formula} each"
        );
    }
}

#[test]
fn messages_leave_one_after_the_other_and_arrive_a_latency_later() {
    const N: usize = 5;
    let times = run(2, |comm| {
        let start = Instant::now();
        let mut x = vec![0u8; 20_000];
        for _ in 0..N {
            match comm.rank() {
                0 => comm.send(&x, 1)?,
                _ => comm.recv(&mut x, 0)?,
            }
        }
        Ok((start, Instant::now()))
    });
    // Each occupies the sender's link for 2 ms; their latencies overlap.
    let seconds = (times[1].1 - times[0].0).as_secs_f64();
    assert!(seconds >= N as f64 * 2e-3 + 2e-3, "{seconds}");
}

#[test]
fn messages_to_one_rank_come_in_one_after_the_other() {
    let n = 5;
    let times = run(n, |comm| {
        comm.barrier()?;
        let start = Instant::now();
        let mut x = vec![0u8; 20_000];
        match comm.rank() {
            0 => (1..n).try_for_each(|from| comm.recv(&mut x, from))?,
            _ => comm.send(&x, 0)?,
        }
        Ok((start, Instant::now()))
    });
    // They leave at the same time, each on its own link, and each occupies the receiver's for 2 ms.
    let first = times[1..].iter().map(|&(start, _)| start).min().unwrap();
    let seconds = (times[0].1 - first).as_secs_f64();
    assert!(seconds >= (n - 1) as f64 * 2e-3 + 2e-3, "{seconds}");
}

#[test]
fn what_is_under_way_is_complete_a_fixed_time_after_the_last_start() {
    let flights = run(2, |comm| {
        // The other rank comes later.
        std::thread::sleep(Duration::from_millis(15 * comm.rank() as u64));
        let before = Instant::now();
        let mut first = comm.start_all_reduce(vec![1f32; 10_000], Reduce::Sum)?;
        let after = Instant::now();
        let mut second = comm.start_all_reduce(vec![1f32; 10_000], Reduce::Sum)?;
        // As if computing: asking does not wait.
        let done = first.test()?;
        let told = Instant::now();
        Ok((before, after, first.complete()?, second.complete()?, done.then_some(told)))
    });
    let cost =
        Duration::from_secs_f64(LINK.collective_seconds(CallKind::StartAllReduce, 2, 40_000));
    let last_before = flights.iter().map(|f| f.0).max().unwrap();
    let last_after = flights.iter().map(|f| f.1).max().unwrap();
    for (before, _, first, second, told) in flights {
        assert!(first.start >= before && first.end >= last_before + cost);
        // Its end is a moment on the link, not when the rank asked.
        assert!(first.end <= last_after + cost);
        assert!(second.end >= first.end + cost);
        assert!(told.is_none_or(|told| told >= first.end));
    }
}

#[test]
fn a_link_changes_no_bit() {
    let body = |comm: Comm| {
        let x: Vec<f32> = (0..3001).map(|i| ((comm.rank() * 31 + i) as f32).sin()).collect();
        let mut y = x.clone();
        comm.all_reduce(&mut y, Reduce::Sum)?;
        let mut z = vec![0.0; 3 * 3001];
        comm.all_gather(&x, &mut z)?;
        suite::collectives::all_types(&comm, 5, Reduce::Sum, 1)?;
        Ok((y, z, comm.start_all_reduce(x, Reduce::Mean)?.wait()?))
    };
    let fast = Link { latency: 1e-6, bandwidth: 1e9 };
    let with =
        launch::run_with(3, &Options { link: Some(fast), ..Options::default() }, body).unwrap();
    assert_eq!(with, launch::run(3, body).unwrap());
}

#[test]
fn a_failing_rank_wakes_those_who_sleep_on_a_link() {
    let slow = Options {
        link: Some(Link { latency: 3600.0, bandwidth: 1.0 }),
        ..Options::default()
    };
    let start = Instant::now();
    let error = launch::run_with(3, &slow, |comm| match comm.rank() {
        0 => anyhow::bail!("the disk is full"),
        1 => Ok(comm.send(&[1u8], 2)?),
        _ => Ok(comm.recv(&mut [0u8], 1)?),
    });
    assert!(format!("{:#}", error.unwrap_err()).starts_with("rank 0 failed: the disk is full"));
    // Only a hang reaches this bound.
    assert!(start.elapsed() < Duration::from_secs(100));
}
