//! What lab00 runs, in which order, and its checks.

use crate::apparatus::{info, ring};
use crate::flags::{Args, Break};
use crate::job::Job;
use crate::job::hosts::in_nodes;
use crate::lesson::{around_the_ring, compare_with_all_gather};
use anyhow::Result;
use kit::flags::ensure_ranks_can_differ;
use kit::place::{Place, Seat, seats};
use kit::show::{only_if, table};
use kit::{Beside, Checks, LabRun, report};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use std::path::PathBuf;

/// Starts the ranks, and runs the lab on each.
///
/// # Errors
/// If the flags do not fit together, a rank fails, or a check does.
pub fn run(args: Args) -> Result<()> {
    let ranks = launch::ranks(args.ranks, 4)?;
    ensure_ranks_can_differ(args.broken.is_some(), ranks)?;
    let folder = PathBuf::from("runs/lab00");
    let run = LabRun {
        ranks,
        ..LabRun::plain("lab00", args.ascii, folder, &args.comm)?
    };
    // Starts the ranks: threads of this process, or one in each process of a launcher. Each of them
    // runs `one_rank`.
    run.on_ranks(|comm, checks| one_rank(&args, &run, comm, checks))
}

// ANCHOR: one_rank
/// One rank's work, and its checks.
fn one_rank(args: &Args, run: &LabRun, comm: &Comm, checks: &mut Checks) -> Result<()> {
    // The number that this rank claims to have.
    let mut number = comm.rank() as u64;
    if args.broken == Some(Break::DuplicateRank) && comm.rank() == comm.size() - 1 {
        number -= 1;
    }
    // Every rank tells every other rank its number and its host. A seat is a node, and the rank's
    // number on that node.
    let mut numbers = vec![0; comm.size()];
    comm.all_gather(&[number], &mut numbers)?;
    let places = Place::gather(comm)?;
    let hosts: Vec<String> = places.iter().map(|place| place.host.clone()).collect();
    let seats = seats(&hosts);

    let seen = around_the_ring(comm, number)?;
    let beside = compare_with_all_gather(comm, number)?;

    if comm.rank() == 0 {
        introduce(args, run, comm, &places, &seats, &numbers)?;
    }
    if !args.info {
        ring::show(&run.screen, comm, &seen)?;
    }
    check(run, comm, checks, beside, &numbers, seen)
}
// ANCHOR_END: one_rank

/// The job, and a line for each rank: its number, its local rank, its node, host, process and
/// thread.
fn introduce(
    args: &Args,
    run: &LabRun,
    comm: &Comm,
    places: &[Place],
    seats: &[Seat],
    numbers: &[u64],
) -> Result<()> {
    // Only rank 0 looks: a host file may be on the job's first node alone.
    let job = Job::here(&args.job)?;
    let saved = match &args.jobenv {
        Some(path) => Some(info::save_environment(&job, path)?),
        None => None,
    };
    let screen = &run.screen;
    run.heading(None);
    if args.info {
        info::show(screen, comm, &job, places, (seats[0], saved))?;
    } else {
        report::ranks(screen, run.ranks);
        let nodes = in_nodes(job.hosts.len());
        let room = format!("{nodes} with room for {} ranks: {}", job.room(), job.per_node_from);
        run.row("job", &room);
        for said in &job.said {
            run.row("note", said);
        }
        if let Some(saved) = saved {
            run.row("jobenv", &saved);
        }
        screen.say("");
    }
    let mut rows = Vec::new();
    for ((&number, seat), place) in numbers.iter().zip(seats).zip(places) {
        rows.push(vec![
            screen.rank(number as usize, format!("rank {number}")),
            seat.local_rank.to_string(),
            seat.node.to_string(),
            place.host.clone(),
            place.process.to_string(),
            format!("'{}'", place.thread),
        ]);
    }
    screen.say(table(
        screen,
        &["number", "local rank", "node", "host", "process", "thread"],
        &rows,
    ));
    Ok(())
}

/// The checks, for the reader and for the exit code. `numbers` are every rank's, `seen` what this
/// rank saw in the ring.
fn check(
    run: &LabRun,
    comm: &Comm,
    checks: &mut Checks,
    beside: Beside,
    numbers: &[u64],
    mut seen: Vec<u64>,
) -> Result<()> {
    let size = comm.size() as u64;
    seen.sort_unstable();
    let complete = seen.iter().copied().eq(0..size);
    // One all-reduce adds up three things: the numbers, the sizes that the ranks know, and the
    // rings that came out right.
    let mut sums = [numbers[comm.rank()], size, u64::from(complete)];
    comm.all_reduce(&mut sums, Reduce::Sum)?;
    let [sum_of_numbers, sum_of_sizes, complete_rings] = sums;
    if comm.rank() != 0 {
        return Ok(());
    }
    run.screen.say("");
    checks.beside("ring", beside);
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]);
    let otherwise = twice
        .map_or("a number is missing".into(), |pair| format!("two ranks are rank {}", pair[0]));
    let what =
        format!("the ranks are {}, each exactly once", listed(&(0..size).collect::<Vec<_>>()));
    let found = only_if(twice.is_some(), format!("found {}", listed(numbers)));
    checks.check(sorted.into_iter().eq(0..size), &what, &found, &otherwise);
    let result = format!("{complete_rings} of {size} ranks");
    checks.check(
        complete_rings == size,
        "the ring brought each number once",
        &result,
        "the ring brought a number twice, or not at all",
    );
    let what = format!("the world sizes that ranks know add up to {size}*{size}");
    checks.check(sum_of_sizes == size * size, &what, "", "the ranks disagree on the world size");
    let expected = size * (size - 1) / 2;
    let what = format!("the numbers add up to {size}*{}/2 = {expected} (by all-reduce)", size - 1);
    let otherwise = format!("the ranks' numbers add up to {sum_of_numbers}, not to {expected}");
    checks.check(
        sum_of_numbers == expected,
        &what,
        &format!("found {sum_of_numbers}"),
        &otherwise,
    );
    checks.end_with("More: --info, --ranks 7, --break duplicate-rank");
    Ok(())
}

/// The first eight numbers.
fn listed(numbers: &[u64]) -> String {
    let first: Vec<String> = numbers.iter().take(8).map(u64::to_string).collect();
    format!("{}{}", first.join(" "), if numbers.len() > 8 { " .." } else { "" })
}
